"""An operator's arguments are found by their names, whatever else this torch has put between them."""

from __future__ import annotations

import pytest

from prismdbg.model.ops import OPS
from prismdbg.rank.c10d import schemas

GROUP = "__torch__.torch.classes.c10d.ProcessGroup"
REDUCTION = "__torch__.torch.classes.c10d.ReduceOp"


def test_this_torch_has_all_that_the_table_knows() -> None:
    found = schemas.read()
    newer = {"gather_into_tensor_"}  # than 2.13
    assert dict(found.known) == {name: spec for name, spec in OPS.items() if name in found.known}
    assert set(OPS) - set(found.known) <= newer
    assert not found.unknown


def test_arguments_that_moved_are_found() -> None:
    arguments = {
        "check": "bool",
        "tensors": "List[Tensor]",
        "process_group": GROUP,
        "new": "str",
        "reduce_op": REDUCTION,
        "timeout": "int",
        "async_op": "bool",
    }
    placed = schemas.placed(OPS["allreduce_"], arguments)
    assert (placed.outputs, placed.inputs, placed.group, placed.reduce_op) == (1, 1, 2, 4)
    assert (placed.timeout, placed.async_op, placed.root, placed.tag) == (5, 6, None, None)


@pytest.mark.parametrize("missing", ["tensors", "process_group", "reduce_op", "async_op", "timeout"])
def test_an_operator_that_lacks_an_argument_is_unknown(missing: str) -> None:
    arguments = {"tensors": "List[Tensor]", "process_group": GROUP, "reduce_op": REDUCTION}
    arguments |= {"async_op": "bool", "timeout": "int"}
    del arguments[missing]
    with pytest.raises(LookupError, match=f"has no argument .*{missing}"):
        schemas.placed(OPS["allreduce_"], arguments)


def test_an_argument_of_another_type_is_not_the_one() -> None:
    arguments = {"tensors": "int", "process_group": GROUP, "reduce_op": REDUCTION, "async_op": "bool", "timeout": "int"}
    with pytest.raises(LookupError, match="tensors"):
        schemas.placed(OPS["allreduce_"], arguments)
