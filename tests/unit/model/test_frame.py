"""The program's own line among the frames of a stack: one rule for incidents, `why`, the debugger and the screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.capsule.log.batch import Batch
from prismdbg.diagnosis.verdict import Call
from prismdbg.jobs.record.incidents import IncidentWatch
from prismdbg.model import user_code
from prismdbg.model.collective import State
from prismdbg.model.frame import Frame, framework_of, is_library, is_program, own_frames, place_of, source_of
from prismdbg.rank.program.frames import program_line
from prismdbg.settings.rank_config import Mode, RankConfig
from tests.unit.logs import Job

PACKAGES = "/venv/lib/python3.11/site-packages"
USER = Frame("/job/train.py", 84, "train_step")
MAIN = Frame("/job/train.py", 120, "main")
MODEL = Frame("/job/model.py", 7, "forward")
C10D = Frame(f"{PACKAGES}/torch/distributed/distributed_c10d.py", 3000, "all_reduce")
LOGGER = Frame(f"{PACKAGES}/torch/distributed/c10d_logger.py", 80, "wrapper")
OVERRIDES = Frame(f"{PACKAGES}/torch/overrides.py", 1771, "handle_torch_function")
BACKWARD = Frame(f"{PACKAGES}/torch/autograd/graph.py", 869, "_engine_run_backward")
FSDP = Frame(f"{PACKAGES}/torch/distributed/fsdp/_collectives.py", 501, "foreach_reduce")
DEEPSPEED = Frame(f"{PACKAGES}/deepspeed/comm/torch.py", 140, "all_reduce")
ZERO = Frame(f"{PACKAGES}/deepspeed/runtime/zero/stage3.py", 9, "reduce")
DEPRECATED = Frame(f"{PACKAGES}/typing_extensions.py", 2999, "wrapper")
CONTEXT = Frame("/usr/lib/python3.11/contextlib.py", 81, "inner")
FUNCTOOLS = Frame("/usr/local/lib/python3.11/functools.py", 300, "wrapped")
OVERRIDE = Frame("/job/counting.py", 12, "__torch_function__")
DISPATCH = Frame("/job/counting.py", 22, "__torch_dispatch__")
RUNPY = Frame("<frozen runpy>", 88, "_run_code")
PACKAGED = Frame(f"{PACKAGES}/transformers/trainer.py", 400, "train")
PACKAGED_MAIN = Frame(f"{PACKAGES}/transformers/run.py", 3, "<module>")


@pytest.mark.parametrize(
    ("frames", "source"),
    [
        ((C10D, LOGGER, USER, MAIN), USER),
        ((MODEL, USER, MAIN), MODEL),
        ((C10D, DEPRECATED, USER), USER),
        ((C10D, CONTEXT, FUNCTOOLS, USER), USER),
        ((C10D, DEEPSPEED, ZERO, USER), USER),
        ((C10D, OVERRIDE, USER, MAIN), USER),
        ((C10D, DISPATCH, BACKWARD, USER), USER),
        ((C10D, Frame("/job/counting.py", 12, "Counting.__torch_function__"), USER), USER),
        ((C10D, PACKAGED, PACKAGED_MAIN, RUNPY), PACKAGED_MAIN),
        ((C10D, LOGGER), LOGGER),
        ((RUNPY,), RUNPY),
    ],
)
def test_the_programs_own_line(frames: tuple[Frame, ...], source: Frame) -> None:
    assert source_of(frames) == source


def test_without_frames_there_is_no_line() -> None:
    assert source_of(()) is None
    assert place_of(()) == ""


@pytest.mark.parametrize(
    ("frames", "framework"),
    [
        ((C10D, LOGGER, USER), None),
        ((C10D, OVERRIDES, LOGGER, USER), None),
        ((C10D, BACKWARD, USER), None),
        ((C10D, LOGGER, FSDP, BACKWARD, USER), FSDP),
        ((C10D, DEEPSPEED, ZERO, USER), ZERO),
        ((C10D, DEPRECATED, ZERO, USER), ZERO),
        ((C10D, OVERRIDE, USER), None),
    ],
)
def test_the_frameworks_line_beside_it(frames: tuple[Frame, ...], framework: Frame | None) -> None:
    assert framework_of(frames) == framework


def test_the_users_line_comes_first() -> None:
    assert place_of((C10D, ZERO, USER)) == f"{USER}, by deepspeed/runtime/zero/stage3.py:9 in reduce"


@pytest.mark.parametrize(
    "filename",
    [
        "/src/pytorch/torch/distributed/distributed_c10d.py",
        "/src/DeepSpeed/deepspeed/comm/torch.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
        "/opt/lib/python311.zip/contextlib.py",
        "<string>",
        str(Path(pytest.__file__)),
        str(Path(sys.modules["contextlib"].__file__ or "")),
    ],
)
def test_what_is_installed_is_no_program(filename: str) -> None:
    assert is_library(filename)


@pytest.mark.parametrize("filename", ["/job/train.py", "train.py", "/home/me/torch_tricks/run.py", "/job/functools.py"])
def test_what_is_the_programs(filename: str) -> None:
    assert not is_library(filename)


def test_a_program_that_is_installed_has_no_own_frames_but_a_line() -> None:
    assert own_frames((C10D, PACKAGED)) == ()


@pytest.fixture
def users() -> Iterator[Callable[..., None]]:
    yield lambda *paths: user_code.use(paths)
    user_code.use(())


@pytest.mark.parametrize(
    ("path", "frames", "source", "framework"),
    [
        (f"{PACKAGES}/transformers", (C10D, PACKAGED, PACKAGED_MAIN, USER), PACKAGED, None),
        ("/job/train.py", (C10D, MODEL, USER, MAIN), USER, MODEL),
        ("/job/", (C10D, OVERRIDE, MODEL, USER), MODEL, None),
        ("/job/mod", (C10D, MODEL, USER), MODEL, None),  # no folder of that name: as without it
        ("/elsewhere", (C10D, PACKAGED, PACKAGED_MAIN), PACKAGED_MAIN, PACKAGED),
    ],
)
def test_the_users_own_code_is_what_they_name(
    users: Callable[..., None], path: str, frames: tuple[Frame, ...], source: Frame, framework: Frame | None
) -> None:
    users(path)
    assert (source_of(frames), framework_of(frames)) == (source, framework)


def test_all_other_code_is_a_librarys_but_is_known_to_breakpoints(users: Callable[..., None]) -> None:
    users(f"{PACKAGES}/transformers", "/job/model.py")
    assert [is_library(frame.filename) for frame in (PACKAGED, MODEL, USER, C10D)] == [False, False, True, True]
    assert [is_program(frame.filename) for frame in (PACKAGED, MODEL, USER, C10D)] == [True, True, True, False]


def test_a_rank_reads_what_record_was_given(tmp_path: Path) -> None:
    RankConfig(mode=Mode.RECORD, socket_dir="", user_code=("/job",)).save(tmp_path / "config.json")
    assert RankConfig.load(tmp_path / "config.json").user_code == ("/job",)


def test_the_same_rule_holds_in_the_rank() -> None:
    here = sys._getframe()
    assert program_line(here) is here


def test_an_incident_and_why_name_one_line() -> None:
    """Once the outermost own frame was named by one of them and the innermost that is not torch's by the other."""
    frames = (C10D, DEEPSPEED, OVERRIDE, MODEL, USER, MAIN)
    job = Job(2)
    job.call(sends_nan={1}, frames=frames)
    sent = job.logs[1].collectives[-1]
    watch = IncidentWatch({"nan": ""})
    watch.feed("1", Batch(notable=[replace(sent, state=State.SCHEDULED)]), 0)

    [wanted] = watch.due(0, ended=True)

    assert Call(rank=1, collective=sent).text.endswith(f" at {place_of(frames)}")
    assert wanted.incident.text.endswith(f" at {place_of(frames)}")
    assert place_of(frames).startswith(str(MODEL))
