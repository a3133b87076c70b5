"""ARCHITECTURE.md, CONTRIBUTING.md and the pages of docs name files, functions, requests and targets that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from prismdbg.capsule import layout
from prismdbg.cli import registry
from prismdbg.cli.commands import replay
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.terminal.replay_script import to_json
from prismdbg.diagnosis.why import Diagnosis
from prismdbg.jobs.replay.compare import Verdict
from prismdbg.script.reader import read
from prismdbg.script.scripted import Scripted
from prismdbg.session.line import parse_line

ROOT = Path(__file__).parents[3]
ARCHITECTURE, CONTRIBUTING, PROTOCOL = (
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs/agent-protocol.md",
)
PAGES = [ARCHITECTURE, CONTRIBUTING, *sorted((ROOT / "docs").glob("*.md"))]
# Below which of them a name begins is clear to a reader: the first three are said in CONTRIBUTING.md.
BASES = [
    ROOT / name for name in (".", "prismdbg", "tests/golden", "tui/prismdbg_tui", "prismdbg/rank", "prismdbg/simulate")
]
SOURCES = ("prismdbg", "tui", "images", "tests", "docs", "examples")
MOST_LINES = 300
MOST_FILES_OF_A_COLLECTIVE = 10

_CODE = re.compile(r"`([^`\n]+)`( \(new\))?")
_FILE = re.compile(r"[\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|json|txt|yml|toml|cpp|h)")
_WALK = re.compile(r"^\| `([\w./]+)` \| `([\w.:]+)` \|", re.MULTILINE)
_WITH_NAMES = re.compile(r"`([\w./-]+\.py)`\s+\(((?:`\w+`(?:,\s+)?)+)")
_CHANGE = re.compile(r"^### \d+\. ", re.MULTILINE)
# What a run, a capsule or a machine holds, not this repository.
WRITTEN = re.compile(
    r"(?:RUN|/|~|\.venv|[a-z]+/<).*|(?:inject|capsules|donors|external|overwritten|passes|prologue|nodes|incidents|requests)/"
)
WRITTEN_NAMES = {
    *("run.json", "config.json", "environment.json", "rank.json", "peak.json", "supervisor.json", "classes.json"),
    *("config.toml", "job.json", "node.json", "request.json", "progress.json", "result.json"),
    *("publish.json", "published.json"),
    *("gpu.json", "passes.json", "manifest.json", "began.json", "out.xml", "state.json"),
}
LAYOUT = {value for value in vars(layout).values() if isinstance(value, str)}


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Of all files."""
    return {path.name for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.is_file()}


def named_files(page: Path) -> list[str]:
    """Paths in backquotes; what is marked as new, patterns, and what a job writes are left out."""
    found = []
    for text, is_new in _CODE.findall(page.read_text()):
        word = text.split(" ")[0].rstrip(",")
        if not is_new and _FILE.fullmatch(word) and not WRITTEN.fullmatch(text) and word not in WRITTEN_NAMES:
            found.append(word)
    return found


def exists(name: str, names: set[str]) -> bool:
    return name in names or name.rstrip("/") in LAYOUT or any((base / name).exists() for base in BASES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path, names: set[str]) -> None:
    assert not [name for name in named_files(page) if not exists(name, names)]


def test_a_file_that_does_not_exist_is_noticed(tmp_path: Path, names: set[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("`model/ops.py`, `model/gone.py`, `jobs/x.py` (new), `gone.py`, `RUN/run.json`, `a | b`")
    assert [name for name in named_files(page) if not exists(name, names)] == ["model/gone.py", "gone.py"]


def test_the_architecture_is_short() -> None:
    assert len(ARCHITECTURE.read_text().splitlines()) <= MOST_LINES


def test_the_layers_are_those_of_the_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    shown = ARCHITECTURE.read_text().partition("## Layers")[2]
    rows = re.findall(r"^    prismdbg\.([a-z_]+(?: \| [a-z_]+)*)", shown, re.MULTILINE)
    assert contract["containers"] == ["prismdbg"] and rows == contract["layers"]


def walks() -> dict[str, list[tuple[str, str]]]:
    """File and function by the walk's title."""
    sections = ARCHITECTURE.read_text().split("\n## ")
    return {part.splitlines()[0]: _WALK.findall(part) for part in sections if part.startswith("The walk of ")}


def test_a_collective_a_block_and_a_replay_are_followed_in_few_files() -> None:
    found = walks()
    assert len(found) == 3 and all(len(rows) > 5 for rows in found.values())
    files = {file for file, _ in found["The walk of one collective"]}
    assert len(files) <= MOST_FILES_OF_A_COLLECTIVE and all(file.endswith(".py") for file in files)


@pytest.mark.parametrize("place", sorted({row for rows in walks().values() for row in rows}), ids="-".join)
def test_a_walk_names_functions_that_are_there(place: tuple[str, str]) -> None:
    file, name = place
    text = (ROOT / file).read_text()
    if file.endswith(".cpp"):
        assert re.search(rf"\b{name}\b", text)
    else:
        *outer, inner = name.split(".")
        assert all(re.search(rf"^class {each}\b", text, re.MULTILINE) for each in outer)
        assert re.search(rf"^\s*(?:def|class) {inner}\b", text, re.MULTILINE)


def test_there_are_ten_changes_and_what_they_name_is_in_its_file() -> None:
    text = CONTRIBUTING.read_text()
    assert len(_CHANGE.findall(text)) == 10
    checked = 0
    for file, listed in _WITH_NAMES.findall(text):
        source = next((base / file for base in BASES if (base / file).is_file()), None)
        for name in re.findall(r"`(\w+)`", listed):
            assert source is not None and re.search(rf"\b{name}\b", source.read_text()), (file, name)
            checked += 1
    assert checked > 10


def test_the_targets_that_are_named_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [ROOT / "README.md", *PAGES]:
        assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets, page


def test_the_protocol_has_every_request_and_event() -> None:
    frozen = json.loads((ROOT / "tests" / "golden" / "wire.json").read_text())
    rows = [row for row in PROTOCOL.read_text().splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    served = re.findall(
        r'^        "(\w+)": ', (ROOT / "prismdbg" / "rank" / "recording_verbs.py").read_text(), re.MULTILINE
    )
    assert "park" in served and set(served) <= named | {"rank", "pid", "moment", "recorder", "lost", "parked"}
    assert set(frozen["verbs"]) <= named
    assert {event.split(" ")[0] for event in frozen["events"]} <= named


# Pages for users: what they show is checked, as far as that needs no job.
SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]
CI = (ROOT / "docs" / "ci.md").read_text()


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)


def shown_commands(page: Path) -> list[str]:
    """In indented and fenced blocks, and those in backquotes that have an option; placeholders are left out."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^ {4,}(.+)$", text, re.MULTILINE)
    lines += [line for block in fenced(text, "bash") for line in block.splitlines()]
    lines += [
        code for code, _ in _CODE.findall(text) if code.startswith(("prismdbg ", "git bisect run ")) and " -" in code
    ]
    found = []
    for line in lines:
        start = re.match(r"(?:git bisect run )?(prismdbg (?!:).+)", line.split("  #")[0].split(" && ")[0].strip())
        if start and "COMMAND" not in line and "..." not in line.split(" -- ")[0]:
            found.append(start[1])
    return found


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_that_are_shown_have_their_options(page: Path) -> None:
    for line in shown_commands(page):
        name, *words = shlex.split(line)[1:]
        command = registry.entries()[name].load()
        if isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_parser(click.Context(command)).parse_args(words)


def test_commands_are_found_in_pages() -> None:
    assert sum(len(shown_commands(page)) for page in SHOWN) > 60
    assert "prismdbg replay CAPSULE --source . --bisect" in shown_commands(ROOT / "docs" / "ci.md")


def test_the_script_is_one_that_replay_reads() -> None:
    (shown,) = fenced(CI, "yaml")
    script = read(shown.encode(), "ci.md")
    assert (len(script.stop_at), len(script.expect), len(script.forbid), len(script.record)) == (1, 1, 2, 1)


def test_the_debugger_commands_are_ones_that_it_knows() -> None:
    (shown,) = fenced(CI, "text")
    lines = [line for line in shown.splitlines() if not line.startswith("#")]
    assert [str(parse_line(line).verb) for line in lines] == ["break", "continue", "print", "origin"]


def test_the_job_of_a_ci_server_is_a_shell_script() -> None:
    (shown,) = fenced(CI, "bash")
    assert subprocess.run(["bash", "-n"], input=shown, text=True, check=False).returncode == 0


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| ", CI.partition("## Exit codes")[2], re.MULTILINE)
    assert {int(code) for row in rows for code in row.split(",")} == {int(code) for code in ExitCode}
    walkthrough = (
        (ROOT / "examples" / "ci" / "README.md").read_text().partition("| exit code | |")[2].partition("## ")[0]
    )
    listed = re.findall(r"^\| ([\d, ]+) \| ", walkthrough, re.MULTILINE)
    assert {int(code) for row in listed for code in row.split(",")} == {int(code) for code in ExitCode}
    help_text = registry.entries()["replay"].load().help or ""
    of_replay = re.findall(r"^ *(\d+)  ", help_text.partition("Exit codes:")[2], re.MULTILINE)
    assert {int(code) for code in of_replay} == {int(code) for code in ExitCode}


def test_the_commands_that_are_said_to_print_json_do() -> None:
    said = re.search(r"With `--json`, `replay` prints(.+?)have `--json`, too", CI, re.DOTALL)
    assert said is not None
    named = {name.strip() for name in re.findall(r"`([a-z -]+)`", said[1])} | {"replay"}
    group = registry.entries()["graph"].load()
    assert isinstance(group, click.Group)
    found = {name: entry.load() for name, entry in registry.entries().items()}
    found |= {f"graph {name}": command for name, command in group.commands.items()}
    with_json = {name for name, command in found.items() if any("--json" in p.opts for p in command.params)}
    assert named == with_json


def test_the_gate_is_what_the_readme_says() -> None:
    said = re.search(r"`make check` before\s+you commit: ([a-z, ]+)\.", (ROOT / "README.md").read_text())
    rule = re.search(r"^check: ([a-z ]+?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert said is not None and rule is not None
    assert said[1].replace("tests", "test").split(", ") == rule[1].split()


def test_setup_names_what_is_missing_where_it_cannot_install_it(tmp_path: Path) -> None:
    """Without apt-get it goes on with what there is."""
    for name in ("bash", "id", "make"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is missing")
        (tmp_path / name).symlink_to(found)
    asked = ["PROGRAMS=no-such-program=its-package bash=bash", f"PYTHON={sys.executable}"]
    ran = subprocess.run(
        ["make", "--no-print-directory", "system", *asked],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"missing: its-package\b.*; going on without", ran.stderr)


def test_the_fields_of_the_output_are_there() -> None:
    _, plain, scripted, why = CI.partition("## Output for programs")[2].split("| field of ")
    diagnosis = Diagnosis(verdicts=(), missing=(), ranks=(0,), nodes={0: "n1"})
    for part, given in (
        (plain, replay._json(Verdict(), "", "")),
        (scripted, to_json(Scripted(), 0, None)),
        (why, diagnosis.to_json()),
    ):
        rows = [row.split(" | ")[0] for row in part.partition("\n\n")[0].splitlines()[2:]]
        named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert named and named <= set(given)
