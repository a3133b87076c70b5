"""Looking at a stopped rank asks no class, no name, no tensor and no loader of the program's own anything."""

from __future__ import annotations

import contextlib
import enum
import json
import pathlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_inspection import frame_with, stop_at
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from prismdbg.errors import UsageError
from prismdbg.rank.debug import rendering
from prismdbg.rank.debug.inspection import address_of, evaluate_at, locals_at, source_at
from prismdbg.rank.program.frames import modules_around

called: list[str] = []


def _tells(name: str) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        called.append(name)
        raise AttributeError(name)

    return method


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        called.append(f"meta {name}")
        return type.__getattribute__(cls, name)


class OfMeta(metaclass=Meta):
    held = 3


class Named(str):
    """A text of the program's own, which is in the place of a name."""

    __slots__ = ()
    for _name in ("__eq__", "__format__", "__str__", "__repr__", "__len__", "__contains__", "startswith"):
        locals()[_name] = _tells(f"name {_name}")

    def __hash__(self) -> int:
        called.append("name __hash__")
        return str.__hash__(self)


class Plain:
    held = 1


class SaysTorch:
    """Its class says that it is of torch."""

    @property
    def mood(self) -> int:
        called.append("mood")
        return 1


class Own(torch.distributions.Distribution):
    @property
    def mean(self) -> Any:
        called.append("mean")
        return torch.ones(1)


class Color(enum.Enum):
    RED = 1


def _tensor(name: str, base: type = torch.Tensor) -> Any:
    is_method = name.startswith("__") or name in ("numel", "detach", "untyped_storage", "data_ptr")
    member = _tells(name) if is_method else property(_tells(name))
    return torch.ones(2).as_subclass(type(f"With{name}", (base,), {name: member}))


def _paths() -> dict[str, Any]:
    """As Python 3.11 holds them, and later ones: whatever a slot is called, something of the program's own is in it."""
    found = {}
    for name in ("_str", "_drv", "_root", "_parts", "_raw_paths", "_tail_cached"):
        for kind, held in (("text", Named("z")), ("list", [Named("z"), "b"]), ("own", Listed(["z", "b"]))):
            path = pathlib.PosixPath("a/b")
            with contextlib.suppress(AttributeError):  # of another Python
                setattr(path, name, held)
            found[f"path{name}_{kind}"] = path
    return found


def _classes() -> dict[str, Any]:
    """What is held under names of the program's own, and what is called by them."""
    foreign = Slotted.__dict__["held"]
    names = type("Names", (), {Named("held"): 1, Named("mood"): 2, Named("slot"): foreign, "__module__": Named("g")})
    other = type("Other", (), {"slot": foreign})
    meant = type("Meant", (list,), {})
    meant.__qualname__ = Named("h")
    made = Meta("Made", (list,), {})
    sizes = torch.Size([torch.SymInt(_Node())])
    found = {"names": names(), "names_class": names, "other": other(), "symbols": [[[[sizes]]]], "sizes": sizes}
    return found | {"appends": made().append, "gets": meant().append, "makes": made.__class_getitem__}


TENSORS = ("__getattribute__", "__getattr__", "shape", "requires_grad", "numel", "detach", "dtype", "untyped_storage")


class Listed(list):
    for _name in ("__len__", "__iter__", "__getitem__", "__bool__", "__eq__"):
        locals()[_name] = _tells(f"list {_name}")


class Slotted:
    __slots__ = ("held",)


class _Node:
    """Of a number that is only known by name."""

    def __getattr__(self, name: str) -> Any:
        called.append(f"node {name}")
        raise AttributeError(name)


def _values() -> dict[str, Any]:
    plain = Plain()
    plain.__dict__[Named("held")] = 2
    function, qualified = _tells("function"), _tells("qualified")
    function.__module__ = Named("a")
    qualified.__qualname__ = Named("b")
    cls = type("Cls", (), {})
    cls.__qualname__, cls.__module__ = Named("c"), Named("d")
    module, nameless = types.ModuleType("one"), types.ModuleType("two")
    module.__name__ = Named("e")
    del nameless.__dict__["__name__"]
    nameless.__dict__["__getattr__"] = _tells("module __getattr__")
    SaysTorch.__module__ = "torch.mine"
    linear = torch.nn.Linear(2, 2)
    linear._parameters[Named("own")] = torch.nn.Parameter(torch.ones(1))
    linear._parameters["other"] = _tensor("__getattribute__", torch.nn.Parameter)
    meta = type("TensorMeta", (type(torch.Tensor),), {"__getattribute__": Meta.__getattribute__})
    of_meta = torch.ones(2).as_subclass(meta("OfTensorMeta", (torch.Tensor,), {}))
    kind = types.new_class("Parts", (torch.nn.ModuleList,), exec_body=lambda ns: ns.update(__getitem__=_tells("item")))
    kind.__module__ = "torch.nn.mine"
    base = Own(torch.Size([2]), torch.Size([]), validate_args=False)
    Color.RED._name_ = Named("f")
    found = {
        "of_meta": OfMeta(), "meta_class": OfMeta, "plain": plain, "function": function, "qualified": qualified,
        "an": cls(), "cls": cls, "module": module, "nameless": nameless, "says_torch": SaysTorch(), "linear": linear,
        "tensor": of_meta, "parts": kind([torch.nn.Linear(1, 1)]), "color": Color.RED,
        "spread": torch.distributions.Independent(base, 0, validate_args=False),
    }  # fmt: skip
    found |= _paths() | _classes()
    return found | {f"with_{name.strip('_')}": _tensor(name) for name in TENSORS}


VALUES = _values()
FRAME = frame_with(VALUES)
FORMS = (
    "{0}", "[{0}]", "{0}.held", "{0}.missing", "{0}.shape", "{0}.mood", "{0}.mean", "{0}.own", "{0}.weight", "{0}.name",
    "{0}[0]", "len({0})", "nan({0})", "{0} + 1", "{0} == {0}", "not {0}", "1 in {0}", "{0}.requires_grad",
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(VALUES))
def test_no_value_is_asked_anything(name: str) -> None:
    for form in FORMS:
        called.clear()
        try:
            json.dumps(evaluate_at(stop_at(FRAME), form.format(name), digest=True), allow_nan=False)
        except UsageError:
            pass
        assert called == [], form.format(name)
    try:
        address_of(stop_at(FRAME), name)
    except UsageError:
        pass
    assert called == []


@pytest.mark.parametrize("text", ["a/b", "/", ".", "/a/../b", "a//./b", "", "//x/y"])
def test_a_path_is_shown_from_what_it_holds(text: str) -> None:
    for path in (pathlib.PosixPath(text), pathlib.PurePosixPath("x", text), pathlib.PosixPath("x") / text):
        assert rendering.short(path).replace("//", "/") == str(pathlib.PurePosixPath(path)).replace("//", "/")
        str(path)  # it keeps its text from here on
        assert rendering.short(path) == str(path)


def test_what_has_too_many_digits_is_shown_by_its_class() -> None:
    assert (rendering.short(range(10**5000)), rendering.short(slice(10**5000))) == ("range", "slice")


def test_a_builtin_method_is_shown_with_its_class() -> None:
    assert [rendering.short(each) for each in ([].append, dict.fromkeys, len)] == [
        "list.append", "dict.fromkeys", "builtins.len",
    ]  # fmt: skip


def test_all_of_them_are_listed() -> None:
    called.clear()
    assert {found["name"] for found in locals_at(stop_at(FRAME), 0)} >= VALUES.keys()
    assert called == []


def test_a_tensor_of_a_class_of_its_own_is_shown_whole() -> None:
    for name in ("with_getattr", "with_shape"):
        shown = evaluate_at(stop_at(FRAME), name)
        assert shown["shape"] == [2] and "sharded" not in shown, name


def _frame(source: str, file: str, **names: Any) -> Any:
    space = {"__name__": "made", **names}
    exec(compile(f"import sys\n{source}", file, "exec"), space)
    return space["frame"]


def test_keys_of_its_globals_are_not_asked_for_their_hash() -> None:
    class Key:
        def __hash__(self) -> int:
            called.append("hash")
            return 1

    frame = _frame("frame = sys._getframe()", "/made.py")
    frame.f_globals[Key()] = 1
    called.clear()
    evaluate_at(stop_at(frame), "frame")
    assert modules_around(frame) == ()
    assert called == []


def test_a_loader_of_its_own_is_not_asked_for_lines() -> None:
    import linecache

    class Loader:
        get_source = _tells("get_source")

    called.clear()
    frame = _frame("def of(): return sys._getframe()\nframe = of()", "/nowhere/made.py", __loader__=Loader())
    assert source_at(stop_at(frame), 0, 3)["lines"] == []
    assert linecache.lazycache("/nowhere/made.py", frame.f_globals)  # as `traceback` does
    assert source_at(stop_at(frame), 0, 3)["lines"] == []
    assert called == []


def test_lines_of_a_module_in_an_archive_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("zipped_lines.py", "import sys\ndef of():\n    return sys._getframe()\n")
    monkeypatch.syspath_prepend(str(tmp_path / "all.zip"))
    frame = importlib.import_module("zipped_lines").of()
    assert source_at(stop_at(frame), 0, 1)["lines"] == ["def of():", "    return sys._getframe()"]


@pytest.fixture
def fake_world() -> Iterator[DeviceMesh]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    torch.distributed.destroy_process_group()


def test_a_placement_of_its_own_is_shown_by_its_class(fake_world: DeviceMesh) -> None:
    mine = type("Mine", (Shard,), {name: _tells(name) for name in ("__str__", "__repr__", "__format__")})
    called.clear()
    shown = [
        rendering.render(DTensor.from_local(torch.ones(2), fake_world, [placement]))["sharded"]["placements"]
        for placement in (Shard(0), mine(0))
    ]
    assert shown == [["S(0)"], [f"{__name__}.Mine"]]
    assert called == []
