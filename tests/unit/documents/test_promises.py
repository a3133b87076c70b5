"""Every promise of `tests/promises.md` stands in its document, and what is named beside it exists; and the figures that
documents give are those of the code and of the measurements."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from broad import BROAD
from click.testing import CliRunner

from prismdbg.capsule.files import SMALL_FILE_BYTES
from prismdbg.capsule.limits import MAX_BLOCKS, MAX_SEGMENTS
from prismdbg.capsule.log.format import EVENT_SEGMENT_BYTES
from prismdbg.checkpoint import bundle
from prismdbg.cli.commands import record as record_command
from prismdbg.importers import json_stream, kineto, memory_snapshot, plain_pickle
from prismdbg.jobs.capture.assemble import CONTEXT_RECORDS
from prismdbg.jobs.record.checkpoints import KEPT
from prismdbg.jobs.record.log_retention import FAR_OFF
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.storage.log_memory import TOLD_BYTES
from prismdbg.log.folding import ESTIMATED_AFTER_NS, ESTIMATED_FROM
from prismdbg.log.joining import JOINED_BYTES
from prismdbg.log.step_rows import MOST_OF_MANY
from prismdbg.rank.c10d.store import MANY_RANKS
from prismdbg.rank.recording.inputs import outcomes
from prismdbg.runtime.limits import MARGIN_BYTES
from prismdbg.settings.file_system import LONGEST_WAIT_S
from prismdbg.settings.state_folders import ALL_SMALL_BYTES, SMALL_BYTES

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "tests" / "promises.md"
PLACES = ("unit", "integration", "frameworks")
RESULTS = (ROOT / "tests" / "bench" / "RESULTS.md").read_text()
NATIVE = ROOT / "prismdbg" / "rank" / "native"
Row = tuple[str, str, str]


def plain(text: str) -> str:
    """Without what Markdown adds: emphasis, backquotes, the target of a link, and where a line ends."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r"[*`]", "", text))


@cache
def document(name: str) -> str:
    return plain((ROOT / name).read_text())


def rows() -> list[Row]:
    """Document, quotation, tests."""
    found = []
    for section in TABLE.read_text().split("\n## ")[1:]:
        name, _, text = section.partition("\n")
        found += [
            (name, *row) for row in re.findall(r"^\| (.+) \| (.+) \|$", text, re.MULTILINE) if row[0] != "promise"
        ]
    return found


@cache
def found_in(name: str) -> frozenset[str]:
    """The names of the tests in the file of that name, also those in a class; empty where there is none."""
    files = [path for place in PLACES for path in (ROOT / "tests" / place).rglob(f"test_{name}.py")]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    return frozenset(
        node.name.removeprefix("test_")
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def not_there(cell: str) -> list[str]:
    """Of the tests that a cell names."""
    missing = []
    for part in cell.split("; "):
        file, _, names = part.partition(": ")
        there = found_in(file)
        missing += [file] * (not there) + [
            f"{file}: {name}" for name in names.split(", ") if name and name not in there
        ]
    return missing


def test_what_is_quoted_is_promised() -> None:
    missing = [(name, quoted) for name, quoted, _ in rows() if plain(quoted) not in document(name)]
    assert not missing, "\n".join(f"{name}: {quoted}" for name, quoted in missing)


def test_what_is_named_beside_it_exists() -> None:
    assert not [(quoted, missing) for _, quoted, cell in rows() if (missing := not_there(cell))]


def in_the_suite(cell: str) -> bool:
    """Whether `make test` runs one of the tests that a cell names. Those of Slurm and frameworks have targets of their
    own, which the documents name."""
    for part in cell.split("; "):
        file, _, names = part.partition(": ")
        left_out = BROAD.get(f"test_{file}.py", ())
        tests = names.split(", ") if names else found_in(file)
        if any(f"test_{name}" not in left_out for name in tests):
            return True
    return False


def test_no_promise_rests_on_broad_tests_alone() -> None:
    assert not [quoted for _, quoted, cell in rows() if not in_the_suite(cell)]


def test_a_promise_of_broad_tests_is_noticed() -> None:
    file, names = next((file, names) for file, names in BROAD.items() if not any("[" in name for name in names))
    cell = f"{file.removeprefix('test_').removesuffix('.py')}: {names[0].removeprefix('test_')}"
    assert not in_the_suite(cell) and in_the_suite(f"{cell}; layers")


def test_a_test_that_does_not_exist_is_noticed() -> None:
    assert not_there("promises: what_is_quoted_is_promised, gone; no_such_file; layers") == [
        "promises: gone",
        "no_such_file",
    ]


@pytest.mark.parametrize(
    ("name", "heading", "at_least"),
    [
        ("README.md", "## What is guaranteed", 4),
        ("docs/guarantees-and-limits.md", "## Guarantees", 7),
        ("SECURITY.md", "## What each place gives", 6),
        ("SECURITY.md", "## Who runs what", 6),
        ("SECURITY.md", "## What of this machine is seen", 4),
        ("SECURITY.md", "## What is missing, and why", 3),
    ],
)
def test_no_guarantee_is_without_a_row(name: str, heading: str, at_least: int) -> None:
    section = (ROOT / name).read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    points = [plain(point) for point in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]
    quotations = [plain(quoted) for document_, quoted, _ in rows() if document_ == name]
    assert len(points) >= at_least
    assert not [point for point in points if not any(quoted in point for quoted in quotations)]


@pytest.mark.parametrize(
    ("name", "said", "value"),
    [
        ("docs/guarantees-and-limits.md", "no thread of the job waits longer than {:.0f} s", LONGEST_WAIT_S),
        ("docs/recording.md", "another {} MiB", EVENT_SEGMENT_BYTES >> 20),
        ("docs/recording.md", "about {:,} collectives before its start moment", CONTEXT_RECORDS),
        ("docs/recording.md", "fewer than {} ranks", MANY_RANKS),
        ("docs/recording.md", "payloads of up to {} KiB, such as the configuration,", SMALL_BYTES >> 10),
        ("docs/recording.md", "are always kept, up to {} MiB of them per", ALL_SMALL_BYTES >> 20),
        ("docs/recording.md", "if that is more than {:.0f} MB", TOLD_BYTES / 1e6),
        (
            "docs/recording.md",
            "After the first {} collectives of a rank, or those of its first minute,",
            ESTIMATED_FROM,
        ),
        ("docs/recording.md", "wrong by more than a factor of {}", FAR_OFF),
        ("docs/how-recording-works.md", "payloads of up to {} KiB are written into segments", SMALL_BYTES >> 10),
        ("docs/many-nodes.md", "joined into files of up to {} MiB", JOINED_BYTES >> 20),
        ("docs/many-nodes.md", "of which it keeps {:,} rows for each rank", MOST_OF_MANY),
        ("docs/replaying.md", "Up to {} KiB of output are noted per program", outcomes.MOST_OUTPUT_BYTES >> 10),
        ("docs/replaying.md", "and {} programs and", outcomes.MOST_PROGRAMS),
        ("docs/replaying.md", "programs and {} MiB per rank", outcomes.MOST_BYTES >> 20),
        ("docs/capsules.md", "the files up to {} MiB that it read", SMALL_FILE_BYTES >> 20),
        ("SECURITY.md", "(larger than {} MiB)", SMALL_FILE_BYTES >> 20),
        ("SECURITY.md", "held at its peak and {} GiB", MARGIN_BYTES >> 30),
    ],
)
def test_figures_are_those_of_the_code(name: str, said: str, value: float) -> None:
    assert said.format(value) in document(name)


@pytest.mark.parametrize(
    ("said", "bounds"),
    [
        ("it may have {} GiB unpacked", (json_stream.MAX_FILE_BYTES >> 30,)),
        ("{:,} calls a rank", (kineto.MOST_CALLS,)),
        ("A snapshot may have {} MiB", (memory_snapshot.MAX_SNAPSHOT_BYTES >> 20,)),
        ("{:,} values: up to about", (plain_pickle.MOST_VALUES,)),
        ("{:,} segments and {:,} blocks", (MAX_SEGMENTS, MAX_BLOCKS)),
    ],
)
def test_bounds_of_other_tools_files_are_those_of_the_code(said: str, bounds: tuple[int, ...]) -> None:
    assert said.format(*bounds) in document("docs/other-tools.md")


def test_figures_in_other_languages_are_those_of_the_code() -> None:
    assert ESTIMATED_AFTER_NS == 60 * 10**9 and "those of its first minute" in document("docs/recording.md")
    assert KEPT == 2 and "twice per rank with --checkpoint-every" in document("docs/recording.md")
    oldest = ".".join(map(str, bundle.OLDEST))
    assert f"CRIU {oldest} or newer" in document("docs/recording.md")
    bounds = re.findall(r"kLongest(?:Drain|Wait) = std::chrono::seconds\((\d+)\)", _native())
    assert bounds == ["5", "5"] == [f"{LONGEST_WAIT_S:.0f}"] * 2
    first = re.search(r"^FIRST, COUNT = (\w+),", (ROOT / "images/starter/user_namespace.py").read_text(), re.MULTILINE)
    assert first is not None and f"number {int(first[1], 16)}" in document("SECURITY.md")


def _native() -> str:
    return "".join(path.read_text() for path in sorted(NATIVE.rglob("*.cpp")))


@pytest.mark.parametrize(("options", "kept"), [((), 256 << 20), (("--log-bytes", "8MiB"), 8 << 20)])
def test_a_log_has_a_budget(options: tuple[str, ...], kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _asked_for(options, monkeypatch).policy.log_bytes == kept


def test_with_window_all_nothing_of_a_log_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _asked_for(("--window", "all", "--log-bytes", "8MiB"), monkeypatch).policy.log_bytes == 0


def _asked_for(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> RecordRequest:
    asked: list[RecordRequest] = []
    monkeypatch.setattr(record_command, "record", lambda request, _say: asked.append(request) or 0)
    ran = CliRunner().invoke(record_command.command, ["-o", "RUN", *options, "--", "true"], standalone_mode=False)
    assert ran.exception is None
    return asked[0]


def measured(section: str, what: str, column: int) -> str:
    """A cell of the results: column 2 is the median, 3 the ratio."""
    text = RESULTS.partition(f"## {section}\n")[2].partition("\n## ")[0]
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {what} |")]
    return row.strip("| ").split(" | ")[column].strip()


STEPS = "Step time, modes in turn in the same processes"
REPLAY = "Replay: first stop, speed, and what it weighs"
CHECKPOINTS = "Checkpoints, predicted and measured"
DEBUGGER = "The debugger: ways back, stops and tracing"
SCREEN = "The screen over a million collectives"
JOB = "8,192 ranks of a GPT, end to end"
EMULATED = "Iteration time of an emulated rank"
INIT = "Initialisation of an emulated rank"


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        ("(bare against bare: {})", [(STEPS, "bare again (the noise)", 3, 1, 3)]),
        ("a step recorded with the default settings, .* {}", [(STEPS, "recorded, all defaults", 3, 1, 3)]),
        ("a step with a payload window of one step, .* {}", [(STEPS, "recorded, --window 1, NaN trigger", 3, 1, 3)]),
        ("a step with a payload window of 8 steps, .* {}", [(STEPS, "recorded, --window 8, NaN trigger", 3, 1, 3)]),
        (
            "checkpoints every 20 steps: .* {} %",
            [(CHECKPOINTS, "measured: mean step over that of a job with --window 1", 2, 1, 1)],
        ),
        (
            "a breakpoint on allocations that is never hit, .* {}",
            [(DEBUGGER, "a stop on allocations that is never hit", 3, 1, 2)],
        ),
        (
            "pause of the job in a capture, .* {}",
            [("Pause of the job in a capture", "capture: pause of the job | bare `criu dump`, the command", 3, 1, 2)],
        ),
        (
            "from a capsule to the first stop, .* {} s, {} s",
            [(REPLAY, "docker: capsule to first stop", 2, 1, 1), (REPLAY, "local: capsule to first stop", 2, 1, 1)],
        ),
        ("a replayed step, against the recorded one .* {}", [(REPLAY, "docker: replayed step", 3, 1, 2)]),
        ("log of a step and rank, .* {} KiB", [(REPLAY, "log, events of a step and rank", 2, 1, 1)]),
        (
            "back by one collective, .* {} s, {} s",
            [(DEBUGGER, "docker: reverse-next", 2, 1, 1), (DEBUGGER, "local: reverse-next", 2, 1, 1)],
        ),
        ("operators and allocations traced, .* {}", [(DEBUGGER, "operators and memory traced", 3, 1, 2)]),
        (
            "a million collectives on the screen: .* {} s, at most {} ms",
            [(SCREEN, "open, 1,000,000 collectives", 2, 1, 1), (SCREEN, "key: to the first", 2, 1, 0)],
        ),
        ("one after another, on a busy machine .* {} min", [(JOB, "8,192 ranks: emulate --classes", 2, 60, 0)]),
        (
            "the whole job of 8,192 ranks simulated, .* {} s, {} s",
            [(JOB, "8,192 ranks: graph simulate", 2, 1, 1), (JOB, "65,536 ranks: graph simulate", 2, 1, 1)],
        ),
        (
            "rank of 8,192 takes {} s .* {} MB",
            [
                (INIT, "8,192 ranks: one rank's init", 2, 1, 1),
                (INIT, "8,192 ranks: one rank's init, memory over a world of 1", 2, 1, 1),
            ],
        ),
        (
            "rank of 65,536 takes {} s and {} MB",
            [
                (INIT, "65,536 ranks: one rank's init", 2, 1, 1),
                (INIT, "65,536 ranks: one rank's init, memory over a world of 1", 2, 1, 1),
            ],
        ),
        ("2 ranks: emulated, against real .* {} .*", [(EMULATED, "2 ranks: emulated", 3, 1, 3)]),
        ("2 ranks: real, against real .* {} .*", [(EMULATED, "2 ranks: real again", 3, 1, 3)]),
        ("4 ranks: emulated, against real .* {} .*", [(EMULATED, "4 ranks: emulated", 3, 1, 3)]),
        ("4 ranks: real, against real .* {} .*", [(EMULATED, "4 ranks: real again", 3, 1, 3)]),
    ],
)
def test_figures_are_those_of_the_results(row: str, figures: list[tuple[str, str, int, float, int]]) -> None:
    """Section, row, column, by what it is divided and with how many digits the document has it."""
    rounded = []
    for section, what, column, divisor, digits in figures:
        value = float(re.split(r" ", measured(section, what, column))[0]) / divisor
        rounded.append(f"{value:.{digits}f}")
    page = (ROOT / "docs" / "measurements.md").read_text()
    escaped = re.escape(row).replace(r"\.\*", ".*").replace(r"\{\}", "{}").replace(r"\ ", " ")
    assert re.search(escaped.format(*(rf"(?<![\d.]){re.escape(text)}(?![\d.])" for text in rounded)), page), rounded


def test_errors_of_an_emulated_iteration_are_those_of_the_results() -> None:
    page = document("docs/measurements.md")
    for ranks in (2, 4):
        said = re.search(
            rf"^- {ranks} ranks, against real in pairs: emulated mean ([\d.]+)%, max ([\d.]+)%.*"
            r"real again mean ([\d.]+)%, max ([\d.]+)%",
            RESULTS,
            re.MULTILINE,
        )
        assert said is not None
        mean, most, mean_again, most_again = said.groups()
        assert re.search(rf"{ranks} ranks: emulated, against real \| [\d.]+ \| {mean} % \| {most} %", page)
        assert re.search(rf"{ranks} ranks: real, against real \| [\d.]+ \| {mean_again} % \| {most_again} %", page)


@pytest.mark.parametrize(
    ("section", "what", "row"),
    [
        ("Prediction, against what was measured", "A100 operators: mean error of each", "forward and backward: .* {}"),
        ("Prediction, against what was measured", "A100 collectives: mean error of each", "GPUs of a node: .* {}"),
        (
            "Predicted iterations, against measured ones",
            "Megatron on Selene: time, mean error",
            "time, mean error .* {}",
        ),
        (
            "Predicted iterations, against measured ones",
            "Megatron on Selene: time, largest error",
            "largest error .* {}",
        ),
        (
            "Predicted iterations, against measured ones",
            "Megatron on Selene: time without the overlap factor, mean error",
            r"\| time, mean error \| [^|]* \| {}",
        ),
        (
            "Predicted iterations, against measured ones",
            "Megatron on Selene: time without the overlap factor, largest error",
            r"\| time, largest error \| [^|]* \| {}",
        ),
        ("Predicted iterations, against measured ones", "Megatron on Selene: memory, largest error", "memory .* {}"),
        (
            "Predicted iterations, against measured ones",
            "vTrain, one node: mean error, each mesh left out",
            "mesh .* {}",
        ),
        (
            "Predicted iterations, against measured ones",
            "vTrain, one node: mean error, each tp and pp left out",
            "pair .* {}",
        ),
    ],
)
def test_errors_of_predictions_are_those_of_the_results(section: str, what: str, row: str) -> None:
    page = (ROOT / "docs" / "prediction.md").read_text()
    assert re.search(row.format(re.escape(measured(section, what, 2))), page)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_errors_of_a_cluster_files_formula_are_those_of_the_results(op: str) -> None:
    page = (ROOT / "docs" / "prediction.md").read_text()
    places = re.findall(rf"^- {op}, 2 x [24]: mean (\S+ %), .*, signed mean (\S+ %)", RESULTS, re.MULTILINE)
    assert len(places) == 2
    assert f"| {op.replace('_', '-')} | {' | '.join(f'{mean} ({signed})' for mean, signed in places)} |" in page


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "send"])
def test_errors_of_a_cluster_files_tables_are_those_of_the_results(op: str) -> None:
    page = (ROOT / "docs" / "prediction.md").read_text()
    means = re.findall(rf"^- tables, {op}, \d x \d: mean (\S+ %)", RESULTS, re.MULTILINE)
    row = re.search(rf"^\| {op.replace('_', '-')} \|(( [\d.]+ % \|| +\|)+)$", page, re.MULTILINE)
    assert row is not None and re.findall(r"[\d.]+ %", row[1]) == means
    row = re.search(r"^\| tables, every .*: (\S+ %) \| (\S+ %) ", RESULTS, re.MULTILINE)
    assert row is not None
    said = f"a mean error of {row[2]} in the other fifth, and the regressors one of {row[1]} in the same shapes"
    assert said in document("docs/prediction.md")


def test_causes_named_right_are_those_of_the_results() -> None:
    page = (ROOT / "docs" / "telemetry.md").read_text()
    text = RESULTS.partition("## Telemetry: why a rank was late\n")[2].partition("\n## ")[0]
    named = re.findall(r"^- (.+): named right in (\d+) of (\d+) runs, wrong in (\d+)", text, re.MULTILINE)
    assert len(named) == 5
    for cause, right, of, wrong in named:
        assert f"| {cause} | {right} of {of} | {wrong} | " in page
    clean = re.search(r"the clean job: a cause was named in (\d+) of (\d+) runs", text)
    assert clean is not None
    assert f"the clean job | | {clean[1]} of {clean[2]} | " in page
    cells = {row[1].strip(): row for row in (line.split("|") for line in text.splitlines()) if len(row) > 8}
    share = cells["the sampler's CPU time"][3].split()[0]
    text = document("docs/telemetry.md")
    assert f"The sampler took {share} % of a core" in text
    steps = cells["steps of the job, with telemetry"]
    low, high = steps[6].strip().split("..")
    assert f"took {steps[4].strip()} times as long as recorded without telemetry, with {low} to {high} " in text


def issued_us(kind: str, when: str) -> list[float]:
    """Of an all_reduce of each size, by the page of results on a GPU."""
    page = (ROOT / "docs" / "gpu-results.md").read_text()
    rows_ = re.findall(rf"^\| [\d.]+ \w+, {kind} \| (.+) \|$", page, re.MULTILINE)
    found = [re.search(rf"(?:^|, ){when} ([\d.]+)", row) for row in rows_]
    return [float(each[1]) for each in found if each is not None]


def test_the_readme_has_what_recording_a_call_on_a_gpu_took() -> None:
    said = re.search(r"added (\d+) to (\d+) µs on the host, and (\d+) to (\d+) µs while", document("README.md"))
    assert said is not None
    found = []
    for when in ("issued in", "behind a busy device issued in"):
        pairs = zip(issued_us("bare", when), issued_us("recorded", when), strict=True)
        more = [recorded - bare for bare, recorded in pairs]
        found += [f"{min(more):.0f}", f"{max(more):.0f}"]
    assert found == list(said.groups())


def test_the_page_of_recording_has_what_a_window_costs_on_a_gpu() -> None:
    whens = ("issued in", "behind a busy device issued in")
    window = sorted(issued_us("window of 8 steps", when)[-1] / 1000 for when in whens)
    without = sorted(issued_us("recorded", when)[-1] / 1000 for when in whens)
    text = "held the thread that issued it for {:.1f} to {:.1f} ms; without a window it took {:.2f} to {:.2f} ms"
    assert text.format(*window, *without) in " ".join(document("docs/recording.md").split())


def test_the_goals_of_a_long_run_are_met_where_that_is_said() -> None:
    section = "Jobs of weeks: following, reading and capturing with a long history"
    run = "8 ranks after 10,000,000 collectives each"
    rows = (f"`status`, {run}", f"`why`, {run}", f"`open` of the RUN to a pipe, {run}")
    assert [measured(section, row, 8) for row in rows] == ["yes"] * 3
    goals = [measured(section, row, 7).removeprefix("<= ") for row in rows]
    text = "status, why and open meet their goals for such a RUN: {}, {} and {}."
    assert text.format(*goals) in document("docs/measurements.md")


def test_the_readme_has_the_figures_of_the_page_of_measurements() -> None:
    page = document("docs/measurements.md")
    said = re.search(
        r"a recorded step took ([\d.]+) times as long as a step without prismdbg \(median; 95 % confidence interval "
        r"([\d.]+) to ([\d.]+)\); steps without prismdbg, compared with each other, gave ([\d.]+) \(.*, "
        r"commit (\w+)\)\. With the received data of 8 steps kept \(--window 8\), a step took (\d+) % longer than "
        r"without prismdbg, and (\d+) % longer while the window filled for the first time",
        document("README.md"),
    )
    assert said is not None
    recorded, low, high, bare, commit, window, filling = said.groups()
    assert f"(bare against bare: {bare}) | {recorded} | {commit} |" in page
    assert f"| {recorded} | {low}..{high} |" in RESULTS and f" at {commit}\n" in RESULTS
    assert re.search(rf"a payload window of 8 steps, against bare \| 1\.{int(window):02}\d \|", page)
    assert re.search(rf"the window fills for the first time \| 1\.{int(filling):02}\d \|", page)


def test_every_section_of_the_results_names_its_command_and_commit() -> None:
    """One was measured outside of a repository; the page of measurements says which."""
    sections = RESULTS.split("\n## ")[1:]
    assert sections and not [text[:60] for text in sections if "`python -m tests.bench" not in text]
    unnamed = [
        text.splitlines()[0] for text in sections if not re.search(r"at [0-9a-f]{7,}(-dirty)?$", text, re.MULTILINE)
    ]
    assert unnamed == [JOB]
