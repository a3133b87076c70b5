"""Whatever is typed at a stop runs none of the program's code: objects whose every method says that it was called."""

from __future__ import annotations

import ctypes
import enum
import json
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from test_inspection import frame_with, look, stop_at
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel

from prismdbg.errors import UsageError
from prismdbg.expr.functions import SIGNATURES
from prismdbg.rank.debug.breakpoints import Breakpoints
from prismdbg.rank.debug.inspection import evaluate_at, locals_at

called: list[str] = []
NAMES = """
    abs add and bool bytes call ceil complex contains copy deepcopy delattr delitem dir divmod enter eq float floor
    floordiv format ge getattr getattribute getitem getstate gt hash iadd index int invert isub iter itruediv le len
    length_hint lshift lt matmul missing mod mul ne neg or pos pow radd rdivmod reduce reduce_ex repr reversed rfloordiv
    rmatmul rmod rmul round rpow rshift rsub rtruediv setattr setitem sizeof str sub truediv trunc xor array fspath
"""
SPECIAL = NAMES.split()


def _tells(name: str) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        called.append(name)
        raise RuntimeError(name)

    return method


def _asked(name: str) -> property:
    return property(_tells(name))


TELLING: dict[str, Any] = {f"__{name}__": _tells(name) for name in SPECIAL} | {
    "__class__": _asked("__class__"),
    "__dict__": _asked("__dict__"),
    "mood": _asked("mood"),
    "to_local": _tells("to_local"),
    "parameters": _tells("parameters"),
    "named_parameters": _tells("named_parameters"),
    "named_children": _tells("named_children"),
    "named_modules": _tells("named_modules"),
    "items": _tells("items"),
    "keys": _tells("keys"),
    "values": _tells("values"),
    "__torch_function__": classmethod(_tells("__torch_function__")),
}


def telling(base: type, *, but: tuple[str, ...] = ()) -> type:
    """A class of the program's own, made of `base`, whose every method tells."""
    return type(base)(f"Telling{base.__name__}", (base,), {n: m for n, m in TELLING.items() if n not in but})


class Meta(type):
    """A class that tells, too."""

    for _name in ("mro_", "__instancecheck__", "__subclasscheck__", "__eq__", "__getattr__", "__repr__", "__len__"):
        locals()[_name] = _tells(f"meta {_name}")
    for _name in ("__name__", "__mro__", "__bases__"):
        locals()[_name] = _asked(f"meta {_name}")
    __hash__ = type.__hash__


class Bare(metaclass=Meta):
    pass


Slotted: Any = type("Slotted", (), {**{n: m for n, m in TELLING.items() if n != "__dict__"}, "__slots__": ("held",)})


class Color(enum.Enum):
    RED = 1
    __eq__ = _tells("enum eq")  # type: ignore[assignment]
    __hash__ = object.__hash__
    __str__ = __repr__ = __len__ = _tells("enum")  # type: ignore[assignment]


def _sampler(data: Any) -> torch.utils.data.RandomSampler:
    """torch's, whose `num_samples` asks its data set for the length."""
    sampler = torch.utils.data.RandomSampler([1, 2, 3])
    sampler.data_source = data
    return sampler


def _values() -> dict[str, Any]:
    slotted = Slotted.__new__(Slotted)
    Slotted.__dict__["held"].__set__(slotted, 3)
    tensor = torch.ones(2)
    own_tensor = telling(torch.Tensor, but=("__dict__", "__class__"))
    module = torch.nn.Sequential(torch.nn.Linear(2, 3))
    own_module = type("OwnModule", (torch.nn.Linear,), {
        name: member for name, member in TELLING.items()
        if name not in ("__setattr__", "__dict__", "__getattribute__", "__class__", "__hash__", "__getattr__")
    })(2, 2)  # fmt: skip
    plain = object.__new__(telling(object))
    samplers = torch.utils.data.BatchSampler(_sampler(torch.utils.data.Subset(plain, [0])), 2, False)
    vars(samplers)["mood"] = property(lambda _: 3)
    values = {
        "plain": plain,
        "bare": Bare(),
        "cls": Bare,
        "slotted": slotted,
        "color": Color.RED,
        "number": int.__new__(telling(int), 7),
        "real": float.__new__(telling(float), 0.5),
        "text": str.__new__(telling(str), "abc"),
        "data": bytes.__new__(telling(bytes), b"abc"),
        "listed": list.__new__(telling(list)),
        "tupled": tuple.__new__(telling(tuple), (1, 2)),
        "some": frozenset.__new__(telling(frozenset), (1, 2)),
        "table": dict.__new__(telling(dict)),
        "ordered": OrderedDict(a=plain),
        "default": defaultdict(_tells("default factory"), a=1),
        "user": UserDict(a=1),
        "holds": [plain, {"plain": plain}, (tensor, plain)],
        "model": module,
        "own_model": own_module,
        "sampler": _sampler(plain),
        "samplers": samplers,
        "cdll": ctypes.cdll,
        "tensor": tensor,
        "own_tensor": torch.Tensor._make_subclass(own_tensor, tensor),
        "count": 3,
        "array": numpy.ones(3),
        "objects": numpy.empty(2, dtype=object),
    }
    values["objects"][0] = plain
    called.clear()
    return values


VALUES = _values()
ATTRIBUTES = [
    "mood",
    "held",
    "grad",
    "shape",
    "T",
    "weight",
    "name",
    "value",
    "missing",
    "a",
    "data",
    "real",
    "num_samples",
]
ATOMS = st.sampled_from([*VALUES, "0", "1", "'a'", "None", "True"])
SIGNS = ["+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "!=", "in", "not in", "is", "is not", "and", "or"]
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(SIGNS), inner).map(" ".join),
        inner.map("(not {})".format),
        inner.map("-({})".format),
        inner.map("({},)".format),
        st.tuples(st.sampled_from(sorted(SIGNATURES)), inner).map("{0[0]}({0[1]})".format),
        st.tuples(inner, inner).map("({0[0]})[{0[1]}]".format),
        st.tuples(inner, inner).map("({0[0]})[{0[1]}:]".format),
        st.tuples(inner, inner).map("({0[0]})[::{0[1]}]".format),
        st.tuples(inner, inner, inner).map("({0[0]})[{0[1]}, {0[2]}]".format),
        st.tuples(inner, st.sampled_from(ATTRIBUTES)).map("({0[0]}).{0[1]}".format),
    ),
    max_leaves=5,
)  # fmt: skip
FRAME = frame_with(VALUES)


@given(TREES)
@example("('a')[listed:]")
@example("('a')[:tupled]")
@example("tensor[table:]")
@example("(1, 2)[::some]")
@example("holds[::slotted]")
@example("sampler.num_samples")
@example("samplers.sampler.num_samples")
def test_no_expression_calls_the_program(text: str) -> None:
    called.clear()
    try:
        json.dumps(evaluate_at(stop_at(FRAME), text, digest=True), allow_nan=False)
    except UsageError:
        pass
    assert called == [], text


@given(TREES)
@example("slotted in data")
@example("holds in array")
@example("array == holds")
@example("array[holds]")
def test_no_condition_calls_the_program(text: str) -> None:
    called.clear()
    stops = Breakpoints(lambda _, __: None)
    try:
        stops.replace([{"kind": "collective", "number": 1, "condition": text}])
    except UsageError:
        return
    stops.holds(stops.watched[0], VALUES.__getitem__, None)
    assert called == [], text


@pytest.mark.parametrize("name", sorted(VALUES))
def test_nothing_is_called_to_show_a_value(name: str) -> None:
    called.clear()
    json.dumps(evaluate_at(stop_at(FRAME), name, digest=True), allow_nan=False)
    assert called == []


def test_nothing_is_called_to_list_the_locals() -> None:
    called.clear()
    assert {found["name"] for found in locals_at(stop_at(FRAME), 0)} >= VALUES.keys()
    assert called == []


def test_no_library_is_loaded_by_looking_for_it() -> None:
    for text in ("cdll['libprismdbg_hostile.so']", "cdll.libhostile", "torch.ctypes.cdll['libprismdbg_hostile.so']"):
        with pytest.raises(UsageError, match=r"not run here|has no"):
            look(text, cdll=ctypes.cdll, torch=torch)


def _fully_sharded(module: torch.nn.Module) -> FullyShardedDataParallel:
    """As FSDP of version 1 holds it, beside an object of the program's own."""
    made = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
    torch.nn.Module.__init__(made)
    made._fsdp_wrapped_module = module
    made.__dict__["data"] = VALUES["plain"]
    return made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model[0].weight[0, 1]", 1.0),
        ("model[-1].bias.grad is None", True),
        ("optimizer.state[model[0].weight]['step']", 4),
        ("optimizer.param_groups[0]['lr']", 0.5),
        ("number + 1", 8),
        ("ordered['a'] is plain", True),
        ("plain in holds", True),
        ("color.name", "RED"),
        ("color.value", 1),
        ("slotted.held", 3),
        ("pair.x + pair[1]", 3),
        ("listed[0] == 1 and len(listed) == 2", True),
        ("samplers.mood is 3", False),
        ("of_range.num_samples", 10),
        ("normal.mean", [1.0, 1.0]),
        ("scheduler.in_cooldown", False),
        ("of_tensors.num_samples", 4),
        ("len(lstm.all_weights[0])", 4),
        ("sharded.module.bias is model[0].bias", True),
        ("checkpointed.module is model", True),
    ],
)  # fmt: skip
def test_what_programs_hold_can_still_be_read(text: str, shown: object) -> None:

    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer.state[model[0].weight]["step"] = 4
    pair_type: Any = namedtuple("pair_type", "x y")
    held = {
        "model": model,
        "optimizer": optimizer,
        "pair": pair_type(1, 2),
        "listed": [1, 2],
        "of_range": torch.utils.data.RandomSampler(range(10), generator=torch.Generator()),
        "normal": torch.distributions.Normal(torch.ones(2), torch.ones(2)),
        "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        "of_tensors": torch.utils.data.RandomSampler(torch.utils.data.TensorDataset(torch.ones(4))),
        "lstm": torch.nn.LSTM(2, 2),
        "sharded": _fully_sharded(model[0]),
        "checkpointed": _fully_sharded(checkpoint_wrapper(model)),
    }
    called.clear()
    found = look(text, **VALUES | held)
    assert (found["value"] if "value" in found else found["values"]) == shown
    assert called == []
