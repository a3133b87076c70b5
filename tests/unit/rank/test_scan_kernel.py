"""The kernel that looks at tensors on a device is kept as PTX; on a GPU, `make gpu` compares it with the host."""

import pytest

from prismdbg.rank.native.device import generate
from tests.gpu import __main__ as harness
from tests.gpu.jobs import Done


def test_the_ptx_is_made_of_the_source_that_is_here() -> None:
    assert f"(sha256 {generate.digest()})" in generate.HEADER.read_text(), "run prismdbg/rank/native/device/generate.py"


def test_without_a_gpu_the_checks_say_so_and_write_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = harness.PAGE.read_text()
    monkeypatch.setattr("sys.argv", ["tests.gpu"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert harness.main() == 0
    assert "finds no GPU here" in capsys.readouterr().out
    assert harness.PAGE.read_text() == before


def test_what_two_ranks_print_at_one_moment_is_read() -> None:
    """A line and its end are two writes."""
    said = 'torchrun says\n{"rank": 1}{"rank": 0}\n\n{"rank": 2}\n'
    assert [one["rank"] for one in Done(0, said, "").objects()] == [1, 0, 2]
