"""A recorded job, one rank of it run again from its start, and the line debugger driving it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import forked

from prismdbg.cli.terminal.repl import run_repl
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import WaitTimeout
from prismdbg.jobs.injection import job_environment, make_inject_folder
from prismdbg.protocol.client import connect_when_ready
from prismdbg.settings.rank_config import ENVIRONMENT_NAME, Mode, RankConfig
from tests.only_forward import OnlyForward

pytestmark = pytest.mark.job

GPT = Path(__file__).resolve().parents[3] / "examples" / "gpt"
WORLD = 2
BOUND_S = 240.0  # the first container of an engine waits for its image to be made

Spawn = Callable[..., "subprocess.Popen[str]"]


@dataclass(frozen=True, slots=True)
class Job:
    """A recorded job; its program is a copy, so that a test may change it."""

    folder: Path
    program: Path

    def log(self, rank: int) -> Path:
        return self.folder / "ranks" / str(rank)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, child_environment: dict[str, str]) -> Job:
    folder = tmp_path_factory.mktemp("repl")
    program = folder / "program"
    program.mkdir()
    for name in ("data.py", "model.py", "train_ddp.py", "corpus.txt"):
        (program / name).write_bytes((GPT / name).read_bytes())
    (folder / "ranks").mkdir()
    make_inject_folder(folder / "inject")
    config = RankConfig(mode=Mode.RECORD, socket_dir=str(folder), run=str(folder), window_steps=-1, native=False)
    config.save(folder / "config.json")
    command = forked(program / "train_ddp.py", "--size", "tiny", "--steps", 3, ranks=WORLD)
    environment = job_environment(folder / "inject", folder / "config.json", child_environment)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return Job(folder, program)


@pytest.fixture
def debug(job: Job, spawn: Spawn) -> Iterator[Callable[..., tuple[int, str]]]:
    """Replays a rank and types `lines`; gives the exit code and what was shown."""
    with tempfile.TemporaryDirectory(prefix="prismdbg-") as short:

        def type_lines(*lines: str, rank: int = 1, **options: Any) -> tuple[int, str]:
            process = start_replay(job.log(rank), Path(short), spawn)
            output = io.StringIO()
            agent = Path(short) / "replay.sock"
            with connect_when_ready(agent, bound_s=BOUND_S, still_alive=lambda: process.poll() is None) as client:
                settings = Settings(bound_s=options.get("bound_s", BOUND_S), checkpoints=False)
                travel = OnlyForward(client)
                code = run_repl(lambda tell: Debugger(travel, tell, settings=settings), lines, output, echo=True)
            process.wait(BOUND_S)
            return code, output.getvalue()

        yield type_lines


def start_replay(log: Path, folder: Path, spawn: Spawn) -> subprocess.Popen[str]:
    """The rank alone, from its program's start, as it was started when it was recorded."""
    facts = json.loads((log / "rank.json").read_text())
    make_inject_folder(folder / "inject")
    config = folder / "config.json"
    RankConfig(
        mode=Mode.REPLAY, socket_dir=str(folder), log=str(log), rank=facts["rank"], world_size=facts["world_size"]
    ).save(config)
    environment = facts["environment"] | {ENVIRONMENT_NAME: str(config)}
    environment["PYTHONPATH"] = f"{folder / 'inject'}{os.pathsep}{environment['PYTHONPATH']}"
    return spawn(*facts["orig_argv"], executable=facts["executable"], env=environment, cwd=facts["cwd"])


def answers(text: str) -> dict[str, str]:
    """What was shown after each line."""
    parts = re.split(r"^\(prismdbg\) (.*)\n", text, flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_walk_through_a_rank(debug: Callable[..., tuple[int, str]]) -> None:
    lines = (
        "where",
        "next",
        "next 3",
        "i",
        "w",
        "print out[0]",
        "print step",
        "print local.step",
        "print ddp.module.head.weight",
        "print nan(out) or not finite(ddp.module.tokens.weight)",
        "print dist.all_reduce(out)",
        "locals",
        "peers",
        "up",
        "list",
        "until 0.1",
        "until 2",
        "continue",
        "info",
        "quit",
    )
    code, text = debug(*lines)
    shown = answers(text)
    assert code == 0, text
    assert shown[""].startswith("stopped at 0.0: before the first line")
    assert "no Python frame" in shown["where"]
    assert "stopped at 0.1 (next): all_gather on group world" in shown["next"]
    assert "DistributedDataParallel(model)" in shown["next"]
    assert "stopped at 0.4 (next): all_reduce" in shown["next 3"]
    assert re.search(r"-> +\d+ .*dist\.all_reduce\(mean\)", shown["next 3"])
    assert re.search(r"^op +all_reduce$", shown["i"], re.MULTILINE)
    assert re.search(r"-> +\d+ +.*train_ddp\.py:\d+ in main", shown["w"])
    assert shown["print out[0]"].startswith("float32[] cpu")
    assert shown["print step"].startswith("0\nnote: the frame also has step")
    assert shown["print local.step"] == "1\n"
    assert shown["print ddp.module.head.weight"].startswith("float32[256, 64] cpu, requires grad")
    assert shown["print nan(out) or not finite(ddp.module.tokens.weight)"] == "False\n"
    assert "cannot be called" in shown["print dist.all_reduce(out)"]
    assert re.search(r"^loss +float32\[\] cpu$", shown["locals"], re.MULTILINE)
    assert re.search(r"0 +0 +recorded +unknown\n +1 +1 +this rank +here", shown["peers"])
    assert "in <module>" in shown["up"] and "__main__" in shown["list"]
    assert "is before the current moment" in shown["until 0.1"]
    assert "stopped at 2.1 (until)" in shown["until 2"]
    assert "the program ended with 0 after 3." in shown["continue"]
    assert "0 synthesized" in shown["continue"] and "never joined" not in shown["continue"]
    assert shown["info"] == shown["continue"]


def test_looking_changes_nothing(debug: Callable[..., tuple[int, str]]) -> None:
    """A run that is looked at closely ends as the recorded one: nothing differs in what it sends after the looks."""
    looks = ("print model", "print out", "print dataset", "print std(ddp.module.head.weight * 2)", "locals", "peers")
    lines = [line for _ in range(6) for line in ("next", *looks)]
    code, text = debug("next 3", *lines, "continue", rank=0)
    assert code == 0, text
    assert "the program ended with 0" in text and "diverged" not in text
    assert "error" not in text


def test_another_program_diverges_with_its_story(debug: Callable[..., tuple[int, str]], job: Job) -> None:
    model = job.program / "model.py"
    original = model.read_text()
    model.write_text(original.replace("dropout: float = 0.1", "dropout: float = 0.1001"))
    try:
        code, text = debug("continue", "print input", "quit")
    finally:
        model.write_text(original)
    assert code == 5, text
    assert "diverged at 0.4: all_reduce sends different values from the recorded ones" in text
    assert "the last of group world, as recorded:" in text
    assert re.search(r"-> +\d+ .*dist\.all_reduce\(mean\)", text)
    assert "list of 1" in answers(text)["print input"]


def test_a_rank_that_computes_for_too_long_is_given_up(debug: Callable[..., tuple[int, str]]) -> None:
    with pytest.raises(WaitTimeout, match="the rank's next collective"):
        debug("continue", bound_s=0.0)
