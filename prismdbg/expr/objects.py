"""What an expression may do with an object of the program without running any of the program's code.

- An attribute: what the object or its class holds (instance, class, slot); no property, no `__getattr__`.
- An index: builtin containers, and subclasses of them that do not index in their own way; tensors and arrays.
- `in`: builtin containers. An element that is no plain value is compared by identity.
- Comparison and arithmetic: plain values (numbers, texts, bytes, None, builtin containers of these), tensors, arrays.
- `and`, `or`, `not`, a condition: plain values, containers, tensors; another object is true unless its class decides.
- A function of the table: as arithmetic, and containers of tensors.
- `is`: everything.
- What is shown or digested: by what it holds; no `repr`, no `str`, no iteration of the program's own.

An int, float, text or bytes of a class of the program's own counts as the builtin value that it is. Types are taken by
`type()`, never by `isinstance`, which asks the object for its `__class__`.
"""

from __future__ import annotations

import array
import collections
import datetime
import enum
import operator
import types
import weakref
from collections.abc import Iterable
from typing import Any

from prismdbg.errors import UsageError

SEQUENCES = (list, tuple, str, bytes, bytearray, range, collections.deque, array.array)
SETS = (set, frozenset)
CONTAINERS = (*SEQUENCES, *SETS, dict)
_EXACT: frozenset[type] = frozenset((bool, int, float, complex, str, bytes, bytearray, type(None), type(Ellipsis)))
_COMPARED: frozenset[type] = _EXACT | {range, datetime.date, datetime.timedelta}
_MEMBERS = (types.MemberDescriptorType, types.GetSetDescriptorType, type(collections.namedtuple("_", "x").x))  # type: ignore[attr-defined]
_AS_THEY_ARE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    classmethod,
    staticmethod,
)
_MRO = type.__dict__["__mro__"].__get__
_NAMESPACE = type.__dict__["__dict__"].__get__
_ABSENT: Any = object()
_PLAIN_NAMES: dict[int, weakref.ref[type]] = {}
MAX_LOOKED = 100_000


def is_a(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """As `isinstance`, by the object's type alone."""
    return issubclass(type(value), kinds)


def exactly(value: Any, kinds: Iterable[type]) -> bool:
    """Whether its class is one of these. By identity: a class may have an idea of its own of what equals it."""
    kind = type(value)
    return any(kind is one for one in kinds)


def definer(kind: type, name: str) -> type | None:
    """The class of its bases, itself among them, that defines `name`."""
    return next((base for base in _MRO(kind) if own(base, name, _ABSENT) is not _ABSENT), None)


def bases(kind: type) -> tuple[type, ...]:
    """The class and what it is made of, itself first."""
    return tuple(_MRO(kind))


def own(kind: type, name: str, default: Any = None) -> Any:
    """What the class itself defines under a name."""
    space = _NAMESPACE(kind)
    if _has_plain_names(kind, space):
        return space.get(name, default)
    return next((value for key, value in space.items() if type(key) is str and key == name), default)


def _has_plain_names(kind: type, space: Any) -> bool:
    """A name of a class of the program's own, which only the making of a class can put there, would be asked whether it
    equals another. Kept by number: a class may have an idea of its own of its hash."""
    known = _PLAIN_NAMES.get(id(kind))
    if known is not None and known() is kind:
        return True
    if not all(type(name) is str for name in space):
        return False
    _PLAIN_NAMES[id(kind)] = weakref.ref(kind)
    return True


def namespaces(kind: type) -> list[Any]:
    """What each of its bases, itself first, defines by name."""
    return [_NAMESPACE(base) for base in _MRO(kind)]


def slots(kind: type) -> dict[str, Any]:
    """Real slots by name: a member descriptor runs no code of the program."""
    return {
        name: member
        for space in namespaces(kind)
        for name, member in space.items()
        if type(name) is str and type(member) is types.MemberDescriptorType
    }


def short_name(kind: type) -> str:
    """A class's own name, without asking its own class."""
    return str(builtin(type.__dict__["__name__"].__get__(kind)))


def kind_name(value: Any) -> str:
    """Its class: `module.Class`; of a builtin one without the module."""
    return kind_text(type(value))


def kind_text(kind: type) -> str:
    """A class's name, without asking its own class."""
    module = builtin(own(kind, "__module__", ""))
    name = builtin(type.__dict__["__qualname__"].__get__(kind))
    return name if type(module) is not str or module in ("", "builtins") else f"{module}.{name}"


def static_attribute(owner: Any, name: str) -> Any:
    """What is held under this name. `UsageError` for what would have to be computed."""
    if is_a(owner, enum.Enum) and name in ("name", "value"):
        name = f"_{name}_"
    found = held_as(owner, name, _ABSENT)
    if found is _ABSENT:
        raise UsageError(
            f"a {kind_name(owner)} has no attribute {name!r}", hint="print the object to see what it holds"
        )
    if exactly(found, _MEMBERS) and not is_a(owner, type):
        return found.__get__(owner, type(owner))
    if exactly(found, _AS_THEY_ARE) or definer(type(found), "__get__") is None or _is_held(owner, name, found):
        return found
    raise UsageError(
        f"{name!r} of a {kind_name(owner)} is computed by the program's code, which is not run here",
        hint="print the values that it is computed from",
    )


def held_as(owner: Any, name: str, default: Any = None) -> Any:
    """What the object or its class holds under a name, by Python's own order. As `inspect.getattr_static`, which asks a
    class of the program's own for its `__dict__`."""
    mine = _ABSENT if is_a(owner, type) else of_name(vars_of(owner) or {}, name, _ABSENT)
    by_class = _defined(owner if is_a(owner, type) else type(owner), name)
    if mine is not _ABSENT and not (by_class is not _ABSENT and _comes_first(type(by_class))):
        return mine
    if by_class is _ABSENT and is_a(owner, type):
        by_class = _defined(type(owner), name)
    return default if by_class is _ABSENT else by_class


def _defined(kind: type, name: str) -> Any:
    by = definer(kind, name)
    return _ABSENT if by is None else own(by, name)


def _comes_first(kind: type) -> bool:
    """Before what the object itself holds: Python's rule of descriptors."""
    return definer(kind, "__get__") is not None and any(definer(kind, name) for name in ("__set__", "__delete__"))


def of_name(held: dict[Any, Any], name: str, default: Any = None) -> Any:
    """What a mapping holds under a text. A key of a class of the program's own would be asked whether it equals it."""
    return next((value for key, value in dict.items(held) if type(key) is str and key == name), default)


def vars_of(value: Any) -> dict[str, Any] | None:
    """What an object itself holds by name; None where it holds nothing so, or its class has its own idea of that."""
    by = definer(type(value), "__dict__")
    slot = None if by is None else own(by, "__dict__")
    if slot is None or not exactly(slot, (types.GetSetDescriptorType, types.MemberDescriptorType)):
        return None
    held = slot.__get__(value, type(value))
    return held if type(held) is dict else None


def _is_held(owner: Any, name: str, found: Any) -> bool:
    """By the object itself: then no class has a say in it."""
    return of_name(vars_of(owner) or {}, name, _ABSENT) is found


def builtin(value: Any) -> Any:
    """The builtin value of a number or text of a class of the program's own; anything else as it is."""
    kind = type(value)
    if exactly(value, _EXACT) or not issubclass(kind, (int, float, complex, str, bytes, bytearray)):
        return value
    if issubclass(kind, int):
        return int.__add__(value, 0)
    if issubclass(kind, float):
        return float.__add__(value, 0.0)
    if issubclass(kind, complex):
        return complex.__add__(value, 0j)
    if issubclass(kind, str):
        return str.__str__(value)
    return (bytes if issubclass(kind, bytes) else bytearray).__getitem__(value, slice(None))


def operand(value: Any, kinds: frozenset[type]) -> Any:
    """What operators and functions may be given. kinds: types beside the builtin ones whose operators are known."""
    value = builtin(value)
    kind = type(value)
    if exactly(value, _COMPARED) or exactly(value, kinds) or kind is slice or issubclass(kind, CONTAINERS):
        return value
    raise UsageError(
        f"a {kind_name(value)} is an object of the program, whose operators are not run here",
        hint="print one of its parts; `is` compares any two objects",
    )


def is_plain_value(value: Any) -> bool:
    """Whether it is one whose comparison is Python's own, and no container."""
    return exactly(value, _COMPARED)


def compared(value: Any, kinds: frozenset[type]) -> Any:
    """`operand`, whose elements are plain values, too: a comparison would ask each of them."""
    value = operand(value, kinds)
    if is_a(value, CONTAINERS) and not exactly(value, (str, bytes, bytearray, range, array.array)):
        _require_plain(value, [MAX_LOOKED])
    return value


def _require_plain(value: Any, left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise UsageError(f"this contains more than {MAX_LOOKED} values", hint="compare a part of it")
    kind = type(value)
    if exactly(value, (list, tuple, set, frozenset, dict)):
        for item in value:
            _require_plain(item, left)
        for item in dict.values(value) if kind is dict else ():
            _require_plain(item, left)
    elif not exactly(value, _COMPARED):
        raise UsageError(
            f"a {kind_name(value)} in it cannot be compared without running the program's code",
            hint="compare one of its parts",
        )


def item(owner: Any, key: Any, kinds: frozenset[type]) -> Any:
    """`owner[key]`; of a mapping what is held, never what its class would make up."""
    if exactly(owner, kinds):
        return operator.getitem(owner, _index(key, kinds))
    by = definer(type(owner), "__getitem__")
    if by is dict or by is types.MappingProxyType:
        return _held_at(owner, key)
    for sequence in SEQUENCES:
        if by is sequence:
            return sequence.__getitem__(owner, _index(key, kinds))
    raise UsageError(
        f"a {kind_name(owner)} is indexed by the program's own code, which is not run here",
        hint="print a part by its name; only tensors, arrays and builtin containers can be indexed",
    )


def _index(key: Any, kinds: frozenset[type]) -> Any:
    """Python asks an object for its `__index__`."""
    for part in key if type(key) is tuple else (key,):
        operand(part, kinds)
    return key


def _held_at(owner: Any, key: Any) -> Any:
    """Looked for one by one: a hash or a comparison of the program's keys would be the program's code."""
    plain = _is_plain(key)
    for held, value in dict.items(owner) if is_a(owner, dict) else ():
        if held is key or (plain and _is_plain(builtin(held)) and builtin(held) == key):
            return value
    raise UsageError(f"unknown key {shown(key)}", hint=_keys_of(owner))


def _is_plain(value: Any) -> bool:
    return exactly(value, _EXACT) or (type(value) is tuple and all(map(_is_plain, value)))


def shown(value: Any) -> str:
    return f"{value!r:.80}" if _is_plain(value) else f"a {kind_name(value)}"


def _keys_of(owner: Any) -> str:
    """Numbered where they are shown, keys that are objects are taken for their numbers."""
    first = next(iter(dict.keys(owner)), None) if is_a(owner, dict) else None
    if first is None or is_a(first, (str, bytes, int, float, tuple)):
        return ""
    return f"name a key of type {kind_name(first)}, as in optimizer.state[model.head.weight]"


def contains(value: Any, container: Any, kinds: frozenset[type]) -> bool:
    """`value in container`."""
    kind = type(container)
    if exactly(container, kinds):
        return bool(compared(value, kinds) in container)
    if issubclass(kind, (str, bytes, bytearray)):
        return _is_plain(builtin(value)) and bool(builtin(value) in builtin(container))
    if kind is range:
        return _is_plain(builtin(value)) and builtin(value) in container
    if not issubclass(kind, CONTAINERS):
        raise UsageError(
            f"a {kind_name(container)} cannot be indexed",
            hint="name a list, a dictionary or a text on the right of `in`",
        )
    value, plain = builtin(value), _is_plain(builtin(value))
    return any(
        held is value or (plain and _is_plain(builtin(held)) and bool(builtin(held) == value))
        for held in elements(container)
    )


def elements(container: Any) -> Iterable[Any]:
    """Of a builtin container or a subclass of one, as the builtin has them; of a mapping its keys."""
    by = next(base for base in (*CONTAINERS,) if issubclass(type(container), base))
    return by.__iter__(container)


def size(container: Any) -> int:
    """Of a builtin container or a subclass of one, as the builtin has it."""
    by = next(base for base in CONTAINERS if issubclass(type(container), base))
    return int(by.__len__(container))


def truth(value: Any, kinds: frozenset[type]) -> bool:
    """As a condition takes it."""
    value = builtin(value)
    kind = type(value)
    if exactly(value, _EXACT) or exactly(value, kinds):
        return bool(value)
    if issubclass(kind, CONTAINERS):
        return size(value) > 0
    if definer(kind, "__bool__") is None and definer(kind, "__len__") is None:
        return True
    raise UsageError(
        f"the truth value of a {kind_name(value)} is computed by the program's own code, which is not run here",
        hint="compare one of its parts, or write `is not None`",
    )
