"""Where what is prismdbg's is bound in a rank's place, which the capsule says."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import capsules
import pytest
from capsules import make_capsule

from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.rank_json import RankJson, given_through_a_pipe
from prismdbg.errors import CapsuleError
from prismdbg.jobs.replay.replay import start
from prismdbg.jobs.replay.replay_plan import ReplayRequest, bind_target, make_plan
from prismdbg.model.deadline import NEVER, Deadline
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.runtime import Say
from prismdbg.runtime.spec import ProgramOrigin, ReplaySpec
from prismdbg.runtime.starter_spec import Isolation, write_spec
from prismdbg.settings.rank_config import FORKED_VARIABLE, SPAWNED_VARIABLE

TRUSTED = Path("/home/user/.cache/prismdbg")


@pytest.mark.parametrize("path", ["/run/prismdbg-1", "/home/user/run/inject/prismdbg", "/home/user/.cache/prismdbg2"])
def test_where_the_rank_knew_it(path: str) -> None:
    assert bind_target(path, [TRUSTED]) == path


@pytest.mark.parametrize(
    "path", [TRUSTED, TRUSTED.parent, TRUSTED / "starter-python" / "0" / "lib" / "python3.11" / "__pycache__", "/home"]
)
def test_nothing_that_the_starter_runs_is_covered(path: Path) -> None:
    """The rank's own folder would lie there, and what the rank left in it would be run at the next start."""
    with pytest.raises(CapsuleError, match="would hide"):
        bind_target(str(path), [TRUSTED])


def test_nor_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "link").symlink_to("cache")
    with pytest.raises(CapsuleError, match="would hide"):
        bind_target(str(tmp_path / "link" / "starter-python"), [tmp_path / "cache"])


@pytest.mark.parametrize("path", ["/", "/proc/1", "/etc/ld.so.preload", "run", "/run/../proc"])
def test_nor_the_kernels(path: str) -> None:
    with pytest.raises(CapsuleError):
        bind_target(path, [])


SPAWNED = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6, pipe_handle=8)"


@pytest.mark.parametrize(
    ("command", "argv", "given"),
    [
        (["python", "-u", "train.py", "-"], ["train.py", "-"], ""),
        (["python", "-m", "kit.train"], ["/job/kit/train.py"], ""),
        (["python", "-c", "import train"], ["-c"], ""),
        (["/usr/bin/train", "--steps=3"], ["/usr/bin/train", "--steps=3"], ""),
        (["python", "-"], ["-"], "from standard input"),
        (["python"], [""], "from standard input"),
        (["python", "-B", "-c", SPAWNED, "--multiprocessing-fork"], ["train.py"], "multiprocessing"),
        (["python", "-c", "from multiprocessing.forkserver import main; main(5)"], ["train.py"], "multiprocessing"),
        (["python", "/env/ray/_private/workers/default_worker.py", "--webui="], ["default_worker.py"], "Ray started"),
    ],
)
def test_what_a_command_does_not_name_cannot_be_started_again(command: list[str], argv: list[str], given: str) -> None:
    rank = cast(RankJson, {"orig_argv": command, "argv": argv})
    found = given_through_a_pipe(rank)
    assert bool(found) is bool(given)
    assert given in found


def test_what_could_not_be_written_whole_starts_no_rank() -> None:
    rank = cast(RankJson, {"orig_argv": ["python", "-c", SPAWNED], "argv": ["train.py"], "withheld": "a queue"})
    assert given_through_a_pipe(rank, is_kept=True).endswith("a queue")


def test_such_a_rank_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, "orig_argv": ["python"], "argv": [""]})
    request = ReplayRequest(capsule=make_capsule(tmp_path / "capsule"))
    with (
        closing(RankFolder(tmp_path / "session" / "rank")) as own,
        pytest.raises(CapsuleError, match="standard input") as raised,
    ):
        make_plan(request, tmp_path / "session", own)
    assert raised.value.hint.startswith("use torchrun")


SPAWNED_RANK = {"orig_argv": ["python", "-c", SPAWNED, "--multiprocessing-fork"], "argv": ["train.py"]}


@pytest.mark.parametrize("manifest", [capsules.MANIFEST, capsules.STATE])
def test_a_spawned_rank_reads_what_it_was_given_from_the_capsule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: Manifest
) -> None:
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, **SPAWNED_RANK})
    capsule = make_capsule(tmp_path / "capsule", manifest, spawned=b"pickles")
    with closing(RankFolder(tmp_path / "session" / "rank")) as own:
        origin = make_plan(ReplayRequest(capsule=capsule), tmp_path / "session", own).spec.origin
    assert isinstance(origin, ProgramOrigin)
    assert Path(origin.env[SPAWNED_VARIABLE]).read_bytes() == b"pickles"
    assert list(origin.argv) == SPAWNED_RANK["orig_argv"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "gave it its function, which a capsule"),
        (
            {"withheld": "a queue among its arguments"},
            "with a queue among its arguments, which a capsule from the program's start does not contain",
        ),
    ],
)
def test_one_is_refused_where_the_capsule_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], told: str
) -> None:
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, **SPAWNED_RANK, **more})
    request = ReplayRequest(capsule=make_capsule(tmp_path / "capsule"))
    with (
        closing(RankFolder(tmp_path / "session" / "rank")) as own,
        pytest.raises(CapsuleError, match=told) as raised,
    ):
        make_plan(request, tmp_path / "session", own)
    assert raised.value.hint.startswith("use torchrun")


class Nowhere:
    """A runtime that starts nothing, and keeps what it was to start."""

    name = "local"

    def __init__(self) -> None:
        self.specs: list[ReplaySpec] = []

    def available(self) -> None:
        return None

    def refuses(self, _spec: ReplaySpec) -> None:
        return None

    def start(self, spec: ReplaySpec, _say: Say = print) -> Any:
        self.specs.append(spec)


@pytest.mark.parametrize("deadline", [NEVER, Deadline.after(7 * 24 * 3600.0)])
def test_the_starter_never_ends_a_rank_before_its_deadline(tmp_path: Path, deadline: Deadline) -> None:
    """A debugger session may stand overnight, and a replay take as long as --timeout allows."""
    runtime, capsule = Nowhere(), make_capsule(tmp_path / "capsule")
    with closing(RankFolder(tmp_path / "session" / "rank")) as own:
        plan = make_plan(ReplayRequest(capsule=capsule), tmp_path / "session", own)
        start(runtime, plan, capsule, print, deadline, plan.unhidden)
    (spec,) = runtime.specs
    told = json.loads(write_spec(spec, Isolation.NONE).read_text())
    assert told["longest_s"] >= deadline.bound_s + 30


@pytest.mark.parametrize(
    ("recorded", "given"),
    [
        ("AVX512", "avx512"),
        ("AVX2", "avx2"),
        ("DEFAULT", "default"),
        ("NO AVX", "default"),
        ("SVE256", "sve256"),
        ("VSX", "vsx"),
        ("Z VECTOR", "zvector"),
        ("RVV", None),
    ],
)
def test_the_rank_gets_the_instruction_set_that_it_had(
    recorded: str, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one that is not known to us torch chooses, as it did when it was recorded."""
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, "cpu_capability": recorded})
    capsule = make_capsule(tmp_path / "capsule")
    with closing(RankFolder(tmp_path / "session" / "rank")) as own:
        origin = make_plan(ReplayRequest(capsule=capsule), tmp_path / "session", own).spec.origin
    assert isinstance(origin, ProgramOrigin)
    assert origin.env.get("ATEN_CPU_CAPABILITY") == given


def test_any_other_rank_reads_no_such_file(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule", spawned=b"pickles")
    with closing(RankFolder(tmp_path / "session" / "rank")) as own:
        origin = make_plan(ReplayRequest(capsule=capsule), tmp_path / "session", own).spec.origin
    assert isinstance(origin, ProgramOrigin)
    assert origin.env.keys().isdisjoint({SPAWNED_VARIABLE, FORKED_VARIABLE})


@pytest.mark.parametrize("knows", [True, False])
def test_a_rank_starts_with_the_variables_of_its_start_alone(
    knows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that names itself where no launcher did sets all of what belongs to that. Capsules that do not know the
    variables of the start have those of later."""
    about = {"environment": {"LANG": "C"}} | ({"variables_set": {}} if knows else {})
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, **about})
    capsule = make_capsule(tmp_path / "capsule")
    with closing(RankFolder(tmp_path / "session" / "rank")) as own:
        origin = make_plan(ReplayRequest(capsule=capsule), tmp_path / "session", own).spec.origin
    assert isinstance(origin, ProgramOrigin)
    assert ("RANK" in origin.env, "WORLD_SIZE" in origin.env) == (not knows, not knows)


def test_a_forked_rank_is_told_by_which_forks_it_came_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"forked": ["1 __main__.run", "1.2 train.train"], "environment": {"LANG": "C"}}
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, **about})
    capsule = make_capsule(tmp_path / "capsule")
    with closing(RankFolder(tmp_path / "session" / "rank")) as own:
        origin = make_plan(ReplayRequest(capsule=capsule), tmp_path / "session", own).spec.origin
    assert isinstance(origin, ProgramOrigin)
    assert origin.env[FORKED_VARIABLE] == "1 __main__.run\n1.2 train.train"
    assert origin.env["LANG"] == "C"
    assert origin.env.keys().isdisjoint({"RANK", "WORLD_SIZE"}), "a program may fork its ranks only without them"


@pytest.mark.parametrize(
    ("forks", "why"),
    [
        ([], "os.fork"),
        (
            ["1 torch.distributed.elastic.multiprocessing.api._wrap"],
            "elastic_launch forked the rank after a rendezvous",
        ),
        (["1 multiprocessing.pool.worker"], "a pool of processes"),
        (["1 concurrent.futures.process._process_worker"], "a pool of processes"),
        (["1 __main__.train"], ""),
    ],
)
def test_one_that_was_forked_otherwise_is_refused(forks: list[str], why: str) -> None:
    found = given_through_a_pipe(cast(RankJson, {"orig_argv": ["python", "train.py"], "forked": forks}))
    assert why in found and bool(why) is bool(found)
