"""Where the arguments of this torch's `c10d::` operators stand: found by their names, so that no version is asked for.

`model/ops.py` says which arguments matter. An operator that lacks one of them, or that is not in the table at all, is
unknown: it is neither recorded nor answered, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from prismdbg.model.ops import OPS, OpSpec

_NAMES: dict[str, tuple[str, ...]] = {
    "group": ("process_group",),
    "outputs": ("tensors", "output_tensors", "output_tensor", "output_lists", "outputs", "output"),
    "inputs": ("tensors", "input_tensors", "input_tensor", "input_lists", "input_list", "inputs", "input"),
    "reduce_op": ("reduce_op",),
    "root": ("root_rank", "dst", "src"),
    "tag": ("tag",),
    "async_op": ("async_op",),
    "timeout": ("timeout",),
}
_SPLITS: dict[str, tuple[str, ...]] = {  # the native recorder does not look at them
    "output_splits": ("output_split_sizes",),
    "input_splits": ("input_split_sizes",),
}
_TYPES = {"group": "c10d.ProcessGroup", "outputs": "Tensor", "inputs": "Tensor", "reduce_op": "c10d.ReduceOp"}
_NAMESPACE = "c10d::"


@dataclass(frozen=True, slots=True)
class Schemas:
    """known: by name, with the positions of this torch. unknown: operators with a process group, and why."""

    known: Mapping[str, OpSpec]
    unknown: Mapping[str, str]

    def positions(self) -> dict[str, dict[str, int]]:
        """Of the known ones: by name and role, as the native recorder takes them."""
        return {
            name: {role: at for role in _NAMES if (at := getattr(spec, role)) is not None}
            for name, spec in self.known.items()
        }


def read() -> Schemas:
    known: dict[str, OpSpec] = {}
    unknown: dict[str, str] = {}
    for name, arguments in _communicating():
        spec = OPS.get(name)
        try:
            if spec is None:
                raise LookupError("this version of prismdbg does not know it")
            known[name] = placed(spec, arguments)
        except LookupError as error:
            unknown[name] = str(error.args[0])
    return Schemas(known, unknown)


def placed(spec: OpSpec, arguments: Mapping[str, str]) -> OpSpec:
    """With the positions of these arguments: types by name, in their order. `LookupError` where one is missing."""
    positions: dict[str, Any] = {}
    for role, names in (_NAMES | _SPLITS).items():
        if getattr(spec, role) is None:
            continue
        at = [at for at, (name, text) in enumerate(arguments.items()) if name in names and _TYPES.get(role, "") in text]
        if not at:
            raise LookupError(f"in torch {torch.__version__} it has no argument {' or '.join(names)}")
        positions[role] = at[0]
    return replace(spec, **positions)


def _communicating() -> Iterator[tuple[str, dict[str, str]]]:
    """c10d's operators with a process group: name, and the arguments' types by their names."""
    names: list[str] = torch._C._dispatch_get_all_op_names()
    for name in names:
        if name.startswith(_NAMESPACE):
            schema: Any = torch._C._get_schema(*name.partition(".")[::2])
            arguments = {argument.name: str(argument.type) for argument in schema.arguments}
            if any(_TYPES["group"] in text for text in arguments.values()):
                yield name.removeprefix(_NAMESPACE), arguments
