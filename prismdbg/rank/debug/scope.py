"""The names that an expression sees in a rank: the event's own, then the program's, frame by frame outwards."""

from __future__ import annotations

import collections
import inspect
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from types import FrameType
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.expr import objects
from prismdbg.expr.evaluator import Environment
from prismdbg.rank.debug.expr_functions import FUNCTIONS
from prismdbg.rank.program.frames import locals_of, module_part, own_frames
from prismdbg.rank.program.tensor_parts import is_tensor, is_torchs, local

MAX_ELEMENTS = 1 << 28
TENSORS = (torch.Tensor, torch.nn.Parameter)
VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
CONTAINERS = (list, tuple, set, frozenset, dict, collections.OrderedDict, collections.deque, torch.Size)
HELD_BY_MODULES = ("_parameters", "_buffers", "_modules")


def environment(lookup: Callable[[str], Any]) -> Environment:
    return Environment(
        lookup=lookup, functions=FUNCTIONS, operand=operand, admit=admit, kinds=kinds(), attribute=attribute, item=item
    )


def kinds() -> frozenset[type]:
    """Whose operators are torch's or numpy's."""
    return frozenset((*TENSORS, *VALUES, *_sharded(), _array_kind() or torch.Tensor))


def _array_kind() -> Any:
    """numpy's array, if the program has numpy."""
    return getattr(sys.modules.get("numpy"), "ndarray", None)


def _sharded() -> Iterator[type]:
    """Of a waiting collective: an operator waits for it, as the program's own would."""
    module = sys.modules.get("torch.distributed._functional_collectives")
    if module is not None:
        yield module.AsyncCollectiveTensor


def operand(value: Any) -> Any:
    """An array of objects would ask each of them."""
    value = local(value)
    if type(value) is _array_kind() and value.dtype.hasobject:
        raise UsageError(
            "this is an array of objects of the program, whose operators are not run here", hint="index it"
        )
    return value


def attribute(owner: Any, name: str) -> Any:
    """Of a module also its parameters, buffers and modules; of a tensor what torch itself computes."""
    if type(owner) is Program:
        return owner.named(name)
    if objects.is_a(owner, torch.nn.Module):
        for held in HELD_BY_MODULES:
            found = objects.of_name(module_part(owner, held), name)
            if found is not None:
                return found
    own = objects.vars_of(owner) or {}
    if is_tensor(owner) and objects.of_name(own, name, own) is own and hasattr(torch._C.TensorBase, name):
        found = getattr(torch._C.TensorBase, name)
        if type(found) is types.GetSetDescriptorType:
            return found.__get__(local(owner))
    found = objects.held_as(owner, name)
    by = objects.definer(type(owner), name)
    if by is not None and type(found) is property and found is objects.own(by, name) and is_torchs(type(owner)):
        if name == "module" and (wrapped := _wrapped(owner)) is not owner:
            return wrapped
        if _is_torchs_throughout(_read_by(found, owner)):
            return found.__get__(owner)
    return objects.static_attribute(owner, name)


def _wrapped(owner: Any) -> Any:
    """What FSDP of version 1 calls its `module`: that property asks the program's module for its class."""
    for held in ("_fsdp_wrapped_module", "_checkpoint_wrapped_module"):
        owner = objects.of_name(module_part(owner, "_modules"), held, owner)
    return owner


def _read_by(found: property, owner: Any) -> list[Any]:
    """What a property reads, if its code names nothing but what the object itself holds; else the object, all of which
    it may ask."""
    code = getattr(found.fget, "__code__", None)
    if code is None or code.co_freevars or any(type(each) is types.CodeType for each in code.co_consts):
        return [owner]
    held = objects.vars_of(owner) or {}
    read = [(objects.of_name(held, name, held), objects.held_as(owner, name)) for name in code.co_names]
    return [value for value, _ in read] if all(own is value for own, value in read) else [owner]


def _is_torchs_throughout(left: list[Any]) -> bool:
    """Whether all that these hold are plain values and objects of torch's own classes. Any other may be asked by a
    property of torch's, as a sampler asks its data set for the length."""
    seen, known = set[int](), set(map(id, (*CONTAINERS, *VALUES, torch.Generator, weakref.ref)))
    while left and len(seen) + len(left) < objects.MAX_LOOKED:
        found = left.pop()
        if objects.is_plain_value(found) or id(found) in seen:
            continue
        kind = found if objects.is_a(found, type) else type(found)
        if id(kind) not in known and not is_torchs(kind):
            return False
        known.add(id(kind))
        seen.add(id(found))
        left += () if kind is found else _held_by(found)
    return not left


def _held_by(value: Any) -> Iterator[Any]:
    if type(value) is weakref.ref:
        yield value()
    if objects.is_a(value, objects.CONTAINERS):
        yield from objects.elements(value)
    for held in (value if objects.is_a(value, dict) else {}, objects.vars_of(value) or {}):
        yield from dict.keys(held)
        yield from dict.values(held)
    for slot in objects.slots(type(value)).values():
        with suppress(AttributeError):  # not set
            yield slot.__get__(value)


def item(owner: Any, key: Any, known: frozenset[type]) -> Any:
    """Of torch's lists of modules also a part."""
    by = objects.definer(type(owner), "__getitem__")
    if objects.is_a(owner, torch.nn.Module) and by is not None and is_torchs(by):
        parts = module_part(owner, "_modules") or module_part(owner, "_parameters")
        if type(key) is int:
            return list(parts.values())[key]
        return objects.item(parts, key, known)
    return objects.item(owner, key, known)


def environment_of(own: Callable[[str], Any], frame: FrameType | None) -> Environment:
    """`own` raises `KeyError` for what is not the event's; the program's frames are looked at only then. `local.op` is
    the program's `op`."""

    def lookup(name: str) -> Any:
        try:
            return own(name)
        except KeyError:
            return Program(lambda other: in_frames(other, frame)) if name == "local" else in_frames(name, frame)

    return environment(lookup)


class Program:
    """`local`: what the program calls by a name, whatever the event calls by it."""

    def __init__(self, lookup: Callable[[str], Any]) -> None:
        self._lookup = lookup

    def named(self, name: str) -> Any:
        try:
            return self._lookup(name)
        except KeyError:
            raise UsageError(f"the program has no {name!r} here", hint="type `locals` to list the names") from None


def in_frames(name: str, frame: FrameType | None) -> Any:
    """A local of the innermost of the program's frames that has one of this name, else a global of one of them."""
    known = list(own_frames(frame))
    for found in known:
        code = found.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and name not in (
            *code.co_varnames,
            *code.co_cellvars,
            *code.co_freevars,
        ):
            continue
        names = locals_of(found)
        if name in names:
            return names[name]
    for found in known:
        if name in found.f_globals:
            return found.f_globals[name]
    raise KeyError(name, "use the event's names and those of the program's own frames")


def admit(left: Any, right: Any) -> None:
    """Refuses what would need far more memory than its operands: a product of a row and a column, say."""
    if any(is_tensor(value) or type(value) is _array_kind() for value in (left, right)):
        shapes = _shape(left), _shape(right)
        elements = _broadcast_elements(*shapes)
        if elements > max(MAX_ELEMENTS, *map(math.prod, shapes)):
            raise UsageError(
                f"the result would have {elements} elements, more than an expression may create",
                hint="slice the operands first, as in x[:10]",
            )


def _shape(value: Any) -> tuple[int, ...]:
    """numpy takes a list for an array."""
    if objects.is_a(value, (list, tuple, range)):
        return (objects.size(value),)
    return tuple(value.shape) if is_tensor(value) or type(value) is _array_kind() else ()


def _broadcast_elements(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Where the shapes do not fit together, torch says so itself. (`torch.broadcast_shapes` would import sympy.)"""
    sizes = zip_longest(reversed(left), reversed(right), fillvalue=1)
    return math.prod(max(a, b) if a and b else 0 for a, b in sizes)
