"""A tensor's bytes in files that NumPy, safetensors' format and torch read back bit by bit."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capsules import MANIFEST, make_capsule

from prismdbg.capsule import safetensors
from prismdbg.debugger import export_verb
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.debugger.tensor_files import TensorShape, require_writer
from prismdbg.errors import FacilityError, UsageError
from prismdbg.rank.debug.tensor_bytes import read_bytes
from prismdbg.session import answers
from prismdbg.session.session import Phase
from tests.unit.simulated_rank import SimulatedRank

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.uint16,
    torch.complex64, torch.float8_e4m3fn,
]  # fmt: skip
SHAPES = [(2, 3, 4), (24,), (1, 24), ()]


def raw(tensor: torch.Tensor) -> bytes:
    return base64.b64decode(read_bytes(tensor, 0, 1 << 20)["data"])


def written(path: Path, tensor: torch.Tensor) -> Path:
    data = raw(tensor)
    shape = TensorShape(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape))
    require_writer(path)(path, "out[0]", shape, [data[:4], data[4:]])
    return path


def tensor_of(dtype: Any, shape: tuple[int, ...]) -> torch.Tensor:
    count = max(1, int(np.prod(shape)))
    return (torch.arange(count) % 7 - 3).to(torch.float32).to(dtype).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_reads_it_back(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = tensor_of(dtype, shape)
    found = torch.load(written(tmp_path / "x.pt", tensor), weights_only=True)
    assert (found.dtype, found.shape, raw(found)) == (dtype, tensor.shape, raw(tensor))


@pytest.mark.parametrize("shape", [*SHAPES, (0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not torch.float8_e4m3fn], ids=str)
def test_numpy_reads_it_back(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = tensor_of(dtype, shape) if 0 not in shape else torch.empty(shape, dtype=dtype)
    found = np.load(written(tmp_path / "x.npy", tensor))
    expected = (tensor.float() if dtype is torch.bfloat16 else tensor).numpy()
    assert found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not torch.complex64], ids=str)
def test_as_safetensors(tmp_path: Path, dtype: Any) -> None:
    tensor = tensor_of(dtype, (2, 3))
    path = written(tmp_path / "x.safetensors", tensor)
    parts, begin = safetensors.read_header(path)
    assert list(parts) == ["out[0]"] and parts["out[0]"].shape == (2, 3)
    assert path.read_bytes()[begin:] == raw(tensor)


@pytest.mark.parametrize(("name", "dtype"), [("x.npy", torch.float8_e4m3fn), ("x.safetensors", torch.complex64)])
def test_what_a_format_does_not_have(tmp_path: Path, name: str, dtype: Any) -> None:
    with pytest.raises(UsageError, match="has no element type") as refused:
        written(tmp_path / name, tensor_of(dtype, (2,)))
    assert ".pt" in refused.value.hint


class Exporting:
    """A debugger whose rank holds one tensor, and gives it in small pieces."""

    def __init__(self, tensor: torch.Tensor, monkeypatch: pytest.MonkeyPatch, **lies: Any) -> None:
        monkeypatch.setattr("prismdbg.rank.debug.tensor_bytes.MOST_BYTES", 100)
        rank = SimulatedRank()
        self.debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05))
        self.debugger.begin()
        ask = SimulatedRank.ask

        def answers_bytes(rank: SimulatedRank, verb: str, **arguments: Any) -> Any:
            if verb != "bytes":
                return ask(rank, verb, **arguments)
            return {**read_bytes(tensor, arguments["offset"], arguments["count"]), **lies}

        monkeypatch.setattr(SimulatedRank, "ask", answers_bytes)


@pytest.mark.parametrize("name", ["x.npy", "x.pt", "x.safetensors"])
def test_a_tensor_is_exported_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    tensor = torch.arange(1000.0).reshape(10, 100)
    exporting = Exporting(tensor, monkeypatch)
    answer = exporting.debugger.do(f"export x {tmp_path / name}")
    assert answer == answers.Done(what=f"{tmp_path / name}: float32[10, 100]")
    assert raw(tensor) in (tmp_path / name).read_bytes() and list(tmp_path.iterdir()) == [tmp_path / name]
    assert (exporting.debugger.exports.array("x") == tensor.numpy()).all()


def test_the_timeline_is_exported_unless_the_name_asks_for_a_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debugger = Exporting(torch.ones(2), monkeypatch).debugger
    debugger.exports.capsule = make_capsule(tmp_path / "capsule", MANIFEST)
    assert debugger.do(f"export timeline {tmp_path / 'x.csv'}") == answers.Done(
        what=f"{tmp_path / 'x.csv'}: 6 collectives"
    )
    assert (tmp_path / "x.csv").read_text().startswith("rank,moment,op,")
    debugger.do(f"export timeline {tmp_path / 'x.npy'}")
    assert (np.load(tmp_path / "x.npy") == 1).all(), "a variable of that name"


def test_an_existing_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.npy").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        Exporting(torch.ones(2), monkeypatch).debugger.do(f"export x {tmp_path / 'x.npy'}")
    assert (tmp_path / "x.npy").read_text() == "mine"


@pytest.mark.parametrize("line", ["export x", "export x x.txt", "export x x", "export x /nowhere/x.npy"])
def test_what_names_no_file_is_refused(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError):
        Exporting(torch.ones(2), monkeypatch).debugger.do(line)


@pytest.mark.parametrize(("dtype", "needed"), [(torch.float32, "4 MiB"), (torch.bfloat16, "4 MiB")], ids=str)
def test_more_than_this_machine_has_room_for_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, needed: str
) -> None:
    """A rank may say what it likes: the disk and the memory would be full before it was found to lie."""
    count = (4 << 20) // (4 if dtype is torch.bfloat16 else dtype.itemsize)
    exporting = Exporting(torch.zeros(count, dtype=dtype), monkeypatch)
    disk = shutil.disk_usage(tmp_path)._replace(free=(4 << 20) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    monkeypatch.setattr(export_verb, "available_bytes", lambda: (4 << 20) - 1)
    with pytest.raises(FacilityError, match=f"needs {needed}; 3 MiB are free on the disk of {tmp_path}"):
        exporting.debugger.do(f"export x {tmp_path / 'x.npy'}")
    with pytest.raises(FacilityError, match=f"needs {needed}; 3 MiB are free in the memory of this machine"):
        exporting.debugger.exports.array("x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "lies",
    [{"bytes": 1 << 50}, {"shape": [1 << 40]}, {"dtype": "x"}, {"data": "?"}, {"data": ""}],
    ids=lambda lies: next(iter(lies)),
)
def test_a_rank_that_lies_is_believed_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies: dict[str, Any]
) -> None:
    exporting = Exporting(torch.arange(100.0), monkeypatch, **lies)
    exporting.debugger.do(f"export x {tmp_path / 'x.npy'}")
    assert exporting.debugger.session.phase is Phase.LOST
    assert list(tmp_path.iterdir()) == []
