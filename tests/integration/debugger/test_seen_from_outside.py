"""What a user sees of the debugger: a NaN traced back to its birth by keys, by lines and by a script, locally and in a
container; a session that outlives its rank and its container; a terminal that gets small."""

from __future__ import annotations

import array
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from chain import INCIDENTS, Taken, prismdbg
from terminal import BOUND_S, Terminal
from waiting import wait_for

from prismdbg.model.moment import Moment

pytestmark = [pytest.mark.job, pytest.mark.criu]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
over_runtimes = pytest.mark.parametrize("runtime", RUNTIMES)
TRAIN = INCIDENTS / "nan" / "train.py"
READS_THE_SCORE = "self.scores[index]"
BIRTH = r"the first NaN was already in the inputs of (\S+), (\S+) at \S*?([^/\s]+\.py):(\d+) in"
SCRIPT = """
run_to: {incident}
back_to:
  - {{name: born, to: origin}}
expect:
  - {{that: nan(input), at: end, name: it is sent}}
  - {{that: line == {line} and not op == "all_reduce", at: born, name: it is born there}}
record:
  - {{name: record, value: index, at: born}}
"""


@dataclass(frozen=True, slots=True)
class Birth:
    """Where a NaN came from, as it is said."""

    op: str
    moment: str
    file: str
    line: int


def birth_in(text: str) -> Birth:
    found = re.search(BIRTH, " ".join(text.split()))
    assert found is not None, text
    return Birth(found[1], found[2], found[3], int(found[4]))


@pytest.fixture(scope="module")
def by_lines(nan_with_checkpoints: Taken) -> Callable[[str], Birth]:
    """As the line debugger says it."""
    capsule, incident = nan_with_checkpoints.capsule, nan_with_checkpoints.manifest.incident.moment

    @cache
    def found(runtime: str) -> Birth:
        lines = ("continue", "next", "reverse-continue", "origin", "print index", "quit")
        said = prismdbg("debug", capsule, "--runtime", runtime, typed="".join(f"{line}\n" for line in lines))
        assert said.code == 0, said.out + said.err
        answers = dict(part.split("\n", 1) for part in said.out.split("(prismdbg) ")[1:])
        assert answers["continue"].startswith(f"stopped at {incident} (breakpoint 1: nan)")
        assert answers["reverse-continue"].startswith(f"stopped at {incident} (breakpoint 1: nan)")
        birth = birth_in(answers["origin"])
        assert f"stopped at {birth.moment} (origin, event " in answers["origin"]
        assert re.search(rf"^-> +{birth.line} .*{re.escape(READS_THE_SCORE)}", answers["origin"], re.MULTILINE)
        return birth

    return found


@pytest.fixture
def debug(prismdbg_command: tuple[str, ...]) -> str:
    """For a shell."""
    return shlex.join([*prismdbg_command, "debug"])


@over_runtimes
def test_back_to_where_the_nan_was_born_by_lines(by_lines: Callable[[str], Birth], runtime: str) -> None:
    birth = by_lines(runtime)
    source = TRAIN.read_text().splitlines()
    assert (birth.file, source[birth.line - 1].strip()) == (
        TRAIN.name,
        f"return *super().__getitem__(index), {READS_THE_SCORE}",
    )
    assert birth == by_lines("local"), "the same in a container"


@over_runtimes
def test_back_to_where_the_nan_was_born_by_keys(
    terminal: Terminal, nan_with_checkpoints: Taken, by_lines: Callable[[str], Birth], debug: str, runtime: str
) -> None:
    incident = nan_with_checkpoints.manifest.incident.moment
    terminal.start(f"{debug} {nan_with_checkpoints.capsule} --runtime {runtime}", 200, 60)
    terminal.until(" stopped ")
    terminal.keys("c")
    terminal.until("stopped at breakpoint 1: nan")
    terminal.keys("n")
    terminal.until_gone("stopped at breakpoint 1: nan")
    terminal.until(" stopped ")
    terminal.keys("C")
    terminal.until(f" stopped   {incident} ")
    terminal.keys("O")
    birth = by_lines(runtime)
    for seen in (
        f" stopped   {birth.moment} ",
        f"{birth.file}:{birth.line} ",
        f"▶{birth.line:>5} ",
        READS_THE_SCORE,
        f"the first NaN was already in the inputs of {birth.op},",
    ):
        terminal.until(seen)
    answers = [line for line in terminal.seen.splitlines() if line.startswith(" the first NaN was already in")]
    assert len(answers) == 1, "above the keys, whatever panes are shown"
    terminal.keys("q")
    terminal.until("ended with 0")


@over_runtimes
def test_back_to_where_the_nan_was_born_by_script(
    nan_with_checkpoints: Taken, nan_scores: Path, by_lines: Callable[[str], Birth], tmp_path: Path, runtime: str
) -> None:
    birth, manifest = by_lines(runtime), nan_with_checkpoints.manifest
    script = tmp_path / "born.yaml"
    script.write_text(SCRIPT.format(incident=manifest.incident.moment, line=birth.line))
    said = prismdbg("replay", nan_with_checkpoints.capsule, "--runtime", runtime, "--script", script, "--json")
    assert said.code == 0, said.out + said.err
    report = said.json
    assert {check["outcome"] for check in report["checks"]} == {"held"}
    (born,) = report["places"]
    assert Birth(born["op"], born["moment"], Path(born["file"]).name, born["line"]) == birth
    corrupt = [math.isnan(score) for score in array.array("f", nan_scores.read_bytes())].index(True)
    (record,) = report["records"]
    assert (record["moment"], record["text"]) == (birth.moment, str(corrupt))
    assert report["reached"] == str(manifest.incident.moment), "as far as it went forwards"


# what a pane shows there, or its frame says, in the order of the key
PANES = (
    "No memory trace.", "train.py:61", "frame ", "out[0]", "world, 4 ranks", "1 breakpoint", ": begins a command",
    "Output ─",
)  # fmt: skip
PROMPT = "(prismdbg) "


class Prompt:
    """The line debugger in a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._answers(0)

    def ask(self, line: str) -> str:
        """What is said until the next prompt."""
        before = self._terminal.said.count(PROMPT.strip())
        self._terminal.type_line(line)
        return self._answers(before)[-2].partition("\n")[2].strip()

    def interrupt(self) -> str:
        """Ctrl-C while a line is carried out; what is said until the next prompt."""
        before = self._terminal.said.count(PROMPT.strip())
        self._terminal.keys("C-c")
        return self._answers(before)[-2].partition("\n")[2].strip()

    def _answers(self, before: int) -> list[str]:
        """Once there is another prompt than so many, and it waits."""

        def waits() -> list[str] | None:
            parts = self._terminal.said.split(PROMPT.strip())
            return parts if len(parts) - 1 > before and not parts[-1].strip() else None

        try:
            return wait_for(waits, BOUND_S, "the next prompt")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self._terminal.said}") from None


@over_runtimes
def test_the_line_debugger_outlives_its_rank(
    terminal: Terminal, nan_with_checkpoints: Taken, debug: str, runtime: str
) -> None:
    """The rank is killed, or its container: it is told, and goes on from a checkpoint with the same bits."""
    terminal.start(f"{debug} {nan_with_checkpoints.capsule} --plain --runtime {runtime}", 160, 45)
    prompt = Prompt(terminal)
    here = prompt.ask("next 2").splitlines()[0]
    number = re.match(r"checkpoint (\d+) at", prompt.ask("checkpoint"))
    assert number is not None
    weights = prompt.ask("print sum(ddp.module.head.weight)")
    expected = prompt.ask("next 3")
    terminal.kill_rank(TRAIN.name)
    assert "the rank is lost" in prompt.ask("next")
    assert "the rank is lost" in prompt.ask("print out")
    back = prompt.ask(f"restart {number[1]}")
    assert here.partition(" (")[0] in back and here.partition("): ")[2] in back
    assert prompt.ask("print sum(ddp.module.head.weight)") == weights
    assert prompt.ask("next 3") == expected
    terminal.type_line("quit")
    terminal.until("ended with 0")  # 5 where a place is not as it was


def test_what_takes_long_is_given_up_by_ctrl_c(terminal: Terminal, nan_early: Taken, debug: str) -> None:
    """It begins before the program imports what takes seconds: the first interrupt comes long before the NaN."""
    incident = nan_early.manifest.incident.moment
    terminal.start(f"{debug} {nan_early.capsule} --plain --runtime local", 160, 45)
    prompt = Prompt(terminal)
    terminal.type_line("continue")
    terminal.until("(prismdbg) continue")
    said = prompt.interrupt()
    stopped = re.search(r"stopped at (\S+) \(paused\)", said)
    assert stopped is not None and Moment.parse(stopped[1]) < incident, said
    assert f"stopped at {incident} (breakpoint 1: nan)" in prompt.ask("continue")
    terminal.type_line("origin")
    terminal.until("searching for the first NaN up to")
    assert "cancelled at " in prompt.interrupt()
    assert prompt.ask("goto 2.1").startswith("stopped at 2.1")


def test_a_small_terminal_loses_nothing(terminal: Terminal, nan_with_checkpoints: Taken, debug: str) -> None:
    incident = nan_with_checkpoints.manifest.incident.moment
    terminal.start(f"{debug} {nan_with_checkpoints.capsule} --runtime local", 200, 50)
    terminal.until(" stopped ")
    terminal.keys("c")
    terminal.until("stopped at breakpoint 1: nan")
    terminal.keys("u", "k", "k", "+", "+")
    terminal.until(" recorded ─")  # of the place under the cursor, not of the rank
    large = terminal.settled()
    terminal.resize(80, 24)
    terminal.until("1 Calls  2 Mem  3 Source")
    small = terminal.settled()
    cursor = re.search(r"▲ \S+", large)
    assert cursor is not None and cursor[0] in small and f" stopped   {incident} " in small
    terminal.resize(200, 50)
    terminal.until_as(large)
    terminal.resize(80, 24)
    terminal.until("1 Calls  2 Mem  3 Source")
    for title in PANES:
        terminal.keys("Tab")
        terminal.until(title)
    terminal.keys("q")
    terminal.until("ended with 0")
