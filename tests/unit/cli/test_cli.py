"""The command line's frame: what becomes which exit code, and which stream says what."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from capsules import IMAGE, MANIFEST, make_capsule

from prismdbg import errors
from prismdbg.capsule.manifest import IncidentKind, Manifest, Origin
from prismdbg.cli import main, registry
from prismdbg.cli.click_errors import WrongValue
from prismdbg.cli.commands import doctor, replay, setup, sweep
from prismdbg.cli.commands.replay import _of_tally
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.param_types import moment, ranks, seconds, size
from prismdbg.jobs.record.setup import Part
from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.jobs.storage.pack import pack
from prismdbg.jobs.storage.verify import verify
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.render.stop_text import tally_text
from prismdbg.runtime.facilities import Facility


@dataclass(frozen=True)
class FakeEntry:
    """A subcommand `try` that does what a test wants."""

    action: Callable[[], object]
    name: str = "try"

    def load(self) -> click.Command:
        return click.command()(self.action)


@pytest.fixture
def run_action(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    def run(action: Callable[[], object]) -> int:
        monkeypatch.setattr(registry, "entries", lambda: {"try": FakeEntry(action)})
        return main.run(["try"])

    return run


def raising(error: BaseException) -> Callable[[], object]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PrismError("x"), ExitCode.FAILED),
        (errors.UsageError("x"), ExitCode.USAGE),
        (errors.CapsuleError("x"), ExitCode.BAD_CAPSULE),
        (errors.FacilityError("x"), ExitCode.LACKING),
        (errors.CheckpointError("x"), ExitCode.LACKING),
        (errors.RuntimeFailure("x"), ExitCode.LACKING),
        (errors.Divergence("x"), ExitCode.DIVERGED),
        (errors.RankLost("x"), ExitCode.RANK_LOST),
        (errors.WaitTimeout("x"), ExitCode.TIMEOUT),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (click.Abort(), ExitCode.INTERRUPTED),
        (click.UsageError("x"), ExitCode.USAGE),
        (click.BadParameter("x"), ExitCode.USAGE),
        (click.exceptions.Exit(17), 17),
    ],
)
def test_every_failure_has_its_exit_code(
    run_action: Callable[[Callable[[], object]], int], error: BaseException, code: int
) -> None:
    assert run_action(raising(error)) == code


def test_every_error_of_ours_has_an_exit_code_of_the_enum() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PrismError)]
    assert {kind.exit_code for kind in kinds} <= {*ExitCode}


@pytest.mark.parametrize(("answer", "code"), [(None, 0), (7, 7), (ExitCode.DIVERGED, 5), ("text", 0), (-9, 137)])
def test_a_subcommand_may_give_its_own(
    run_action: Callable[[Callable[[], object]], int], answer: object, code: int
) -> None:
    assert run_action(lambda: answer) == code


def test_an_error_says_what_and_what_to_do(
    run_action: Callable[[Callable[[], object]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    run_action(raising(errors.CapsuleError("rank 3 is damaged\nat byte 12", hint="fetch it again")))
    said = capsys.readouterr()
    assert said.err == "error: rank 3 is damaged\n  at byte 12\n  try: fetch it again\n"
    assert said.out == ""


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "error: /job/run: Permission denied\n  try: run this as the owner"),
        (errno.ENOSPC, "error: /job/run: No space left on device\n  try: free some space there"),
        (errno.ENAMETOOLONG, "error: /job/run: File name too long\n  try: give a shorter path"),
    ],
)
def test_what_the_machine_refuses_is_no_defect(
    run_action: Callable[[Callable[[], object]], int], capsys: pytest.CaptureFixture[str], number: int, said: str
) -> None:
    assert run_action(raising(OSError(number, os.strerror(number), "/job/run"))) == ExitCode.LACKING
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), FileNotFoundError(errno.ENOENT, "gone", "/job/run")])
def test_a_defect_is_not_hidden(run_action: Callable[[Callable[[], object]], int], error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_action(raising(error))


@pytest.mark.parametrize("arguments", [["nothing-such"], ["--nothing-such"], ["inspect"], ["list", "--size", "1"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == ExitCode.USAGE
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and hint.startswith("  try: see `prismdbg ")


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("relpay x", "unknown command 'relpay'; did you mean 'replay'?", "see `prismdbg --help`"),
        ("graph bild", "unknown command 'bild'", "see `prismdbg graph --help`"),
        ("replay x --untill 3", "unknown option '--untill'; did you mean '--until'?", "see `prismdbg replay --help`"),
        ("status", "argument RUN is missing", "see `prismdbg status --help`"),
        ("capture run", "option --rank is missing", "see `prismdbg capture --help`"),
        ("capture run --rank x", "--rank: 'x' is not a whole number", "see `prismdbg capture --help`"),
        ("record -o run --ranks 3-1 -- true", "--ranks: '3-1' is in descending order", "write 1-3"),
        ("replay x --timeout soon", "--timeout: 'soon' is not a duration", "write 600, 30s, 10m or 1h"),
        ("doctor now", "unexpected argument now", "see `prismdbg doctor --help`"),
        (
            "graph build no-such",
            "RUN|CAPSULE|TRACES: no such file or directory: no-such",
            "see `prismdbg graph build --help`",
        ),
    ],
)
def test_a_wrong_line_is_told_as_every_other_error(
    line: str, error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(line.split()) == ExitCode.USAGE
    assert capsys.readouterr().err == f"error: {error}\n  try: {hint}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"],
        ["replay", "capsule", "--bisect"],  # the captured program, whichever commit is checked out
        ["replay", ".", "--bisect", "--runtime", "plain"],  # refused without --allow-writes
        ["replay", ".", "--bisect", "--runtime", "plain", "--allow-writes", "--until", "1"],
        ["replay", ".", "--bisect", "--runtime", "plain", "--allow-writes", "--tolerance", "0.1"],
        ["replay", "capsule", "--bisec", "--source", "."],
        ["replay", "capsule", "--bisect=yes", "--source", "."],
        ["replay", "capsule", "--bisect", "--source", ".", "-x", "-"],
        ["replay", "capsule", "--bisect", "--source", ".", "--script", "nowhere.yaml"],
        ["replay", "capsule", "--bisect", "--source", ".", "--timeout", "soon"],
        ["replay", "capsule", "--bisect", "--source", ".", "--junit", "out.xml"],
        ["replay", "capsule", "--bisect", "--source", ".", "--until", "1"],
        ["replay", "no-such-capsule", "--bisect", "--source", "."],
        ["replay", "--bisect", "--source", "."],
        ["repaly", "capsule", "--bisect", "--source", "."],
        ["--loud", "replay", "capsule", "--bisect", "--source", "."],
    ],
)
def test_wrong_usage_is_no_verdict_of_a_commit(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`git bisect run` takes 1 to 127, but 125, for bad."""
    code = main.run(arguments)
    assert code == (ExitCode.NO_VERDICT if len(arguments) > 1 else ExitCode.USAGE)
    assert "rror: " in capsys.readouterr().err


def test_what_a_job_is_told_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["record", "--no-such-option", "--", "train.py", "--bisect"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PrismError("x"), 125),
        (errors.CapsuleError("x"), 125),
        (errors.FacilityError("x"), 125),
        (errors.RankLost("x"), 125),
        (errors.WaitTimeout("x"), 125),
        (KeyError("x"), 125),
        (errors.UsageError("x"), 128),
        (errors.Divergence("x"), 5),
        (BrokenPipeError(), 128),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_ends_a_bisected_replay_is_a_verdict_or_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, code: int
) -> None:
    from prismdbg.cli.terminal import replay_script

    monkeypatch.setattr(replay_script, "replay_scripted", lambda _: raising(error)())
    monkeypatch.setattr(console, "readers_gone", lambda: [9])
    monkeypatch.setattr(console, "forget", lambda _: None)
    make_capsule(tmp_path / "capsule")
    assert main.run(["replay", str(tmp_path / "capsule"), "--source", str(tmp_path), "--bisect"]) == code


@pytest.mark.parametrize("kind", IncidentKind)
def test_a_capsule_in_which_nothing_can_happen_again_judges_no_commit(
    kind: IncidentKind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hang is answered in every replay, and how long a step takes is not compared."""
    incident = replace(MANIFEST.incident, kind=kind, text="so it was")
    make_capsule(tmp_path / "capsule", replace(MANIFEST, incident=incident))
    asked = ["replay", str(tmp_path / "capsule"), "--source", str(tmp_path)]
    never = kind in (IncidentKind.REQUEST, IncidentKind.SIGNAL, IncidentKind.HANG, IncidentKind.SLOW)
    assert (main.run([*asked, "--bisect"]) == ExitCode.NO_VERDICT) == never
    assert ("no commit would be bad" in capsys.readouterr().err) == never
    assert main.run(asked) == ExitCode.USAGE  # no file of it is the program's
    assert "the relative path" in capsys.readouterr().err
    plain = ["replay", str(tmp_path / "capsule"), "--runtime", "plain", "--allow-writes", "--bisect"]
    assert (main.run(plain) == ExitCode.NO_VERDICT) == never
    assert ("no commit would be bad" in capsys.readouterr().err) == never


def test_a_plain_bisection_needs_the_programs_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a checkpoint each commit would be skipped: a plain process does not restore one."""
    make_capsule(tmp_path / "capsule", replace(MANIFEST, origin=Origin.IMAGE, contains_raw_memory=True))
    plain = ["replay", str(tmp_path / "capsule"), "--runtime", "plain", "--allow-writes", "--bisect"]
    assert main.run(plain) == ExitCode.NO_VERDICT
    assert "--runtime plain with --bisect needs a capsule from the program's start" in capsys.readouterr().err


def unread(monkeypatch: pytest.MonkeyPatch, line: list[str]) -> int:
    """The exit code where nobody reads what it prints."""

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patched:
        patched.setattr(click, "echo", closed)
        patched.setattr(console, "readers_gone", lambda: [9])
        patched.setattr(console, "forget", lambda _: None)
        return main.run(line)


def test_doctor_fails_for_a_reader_that_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Facility(name="criu", ok=False, needed_for="checkpoints", detail="missing")
    for found, code in ((), ExitCode.OK), ((missing,), ExitCode.LACKING):
        monkeypatch.setattr(doctor, "facilities", lambda *_, found=found: found)
        for more in ([], ["--json"]):
            assert unread(monkeypatch, ["doctor", *more]) == code


def test_doctor_marks_what_need_not_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"criu": False, "kernel": True, "gpu": False}
    found = [Facility(name=name, ok=ok, needed_for="ranks", detail="found") for name, ok in states.items()]
    monkeypatch.setattr(doctor, "facilities", lambda *_: found)
    assert main.run(["doctor"]) == ExitCode.LACKING
    out, told = capsys.readouterr()
    rows = out.splitlines()[1:]
    assert [line.split()[:2] for line in rows] == [["no", "criu"], ["ok", "kernel"], ["optional", "gpu"]]
    assert told.splitlines() == ["capsules from a checkpoint: no", "capsules from the program's start: no"]


def test_setup_fails_for_a_reader_that_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "set_up", lambda *_: [Part(name="recorder", lacking="gcc", instead="slower")])
    for more in ([], ["--json"]):
        assert unread(monkeypatch, ["setup", "--strict", *more]) == ExitCode.LACKING


def test_sweep_fails_for_a_reader_that_has_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep, "sweep", lambda *_: [])
    (tmp_path / "s").mkdir()
    line = ["sweep", "-o", str(tmp_path / "s"), "--world", "2", "--mesh", "dp", "--try", "mbs=1", "--", "train.py"]
    assert unread(monkeypatch, line) == ExitCode.FAILED


def test_all_that_a_bisection_of_a_hang_lacks_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hang = replace(MANIFEST.incident, kind=IncidentKind.HANG, text="rank 0 waits")
    make_capsule(tmp_path / "capsule", replace(MANIFEST, origin=Origin.IMAGE, contains_raw_memory=True, incident=hang))
    assert main.run(["replay", str(tmp_path / "capsule"), "--source", str(tmp_path), "--bisect"]) == ExitCode.NO_VERDICT
    said = capsys.readouterr().err
    assert "no commit would be bad; and its first collective is " in said and "from the program's start" in said
    assert "add --script with a check" in said and "--window all" in said
    assert main.run(["replay", str(tmp_path / "capsule"), "--bisect"]) == ExitCode.NO_VERDICT
    said = capsys.readouterr().err
    assert "--source ." in said and "needs --script, too" in said


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["verify", "--help"], ["--version"]])
def test_asking_for_help_is_no_failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == ExitCode.OK
    assert "prismdbg" in capsys.readouterr().out


def test_help_lists_every_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["--help"])
    listed = capsys.readouterr().out
    files = {path.stem for path in (Path(main.__file__).parent / "commands").glob("*.py")}
    for name, entry in registry.entries().items():
        assert name in files
        assert f"  {name} " in listed and entry.summary[:30] in listed


@pytest.mark.parametrize("name", sorted(registry.entries()))
def test_every_command_loads_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([name, "--help"]) == ExitCode.OK
    assert f"Usage: prismdbg {name}" in capsys.readouterr().out


def command_of(*words: str) -> click.Command:
    """The command that these words name, as far as they do."""
    found: click.Command = main.cli
    for word in words:
        if isinstance(found, click.Group) and (below := found.get_command(click.Context(found), word)) is not None:
            found = below
    return found


def command_lines(*words: str) -> list[str]:
    """Of this command and all below it."""
    command = command_of(*words)
    below = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ()
    return [" ".join(words), *(line for name in below for line in command_lines(*words, name))]


@pytest.mark.parametrize("line", command_lines()[1:])
def test_help_has_an_example_whose_options_exist(line: str) -> None:
    text = command_of(*line.split()).help
    assert text is not None
    (paragraph,) = [part for part in text.split("\n\n") if part.strip().startswith("Example: `")]
    examples = [example.split(" -- ")[0] for example in re.findall(r"`prismdbg ([^`]+)`", paragraph)]
    assert not examples or any(example.startswith(line) for example in examples)
    for example in examples:
        known = {option for parameter in command_of(*example.split()).params for option in parameter.opts}
        assert {word.split("=")[0] for word in example.split() if word.startswith("-")} <= known, example


def test_help_imports_nothing_heavy(child_environment: dict[str, str], prismdbg_command: tuple[str, ...]) -> None:
    program = (
        "import sys\nfrom prismdbg.cli import main\nassert main.run(['--help']) == 0\n"
        "heavy = {'torch', 'numpy', 'docker', 'rich', 'textual', 'yaml', 'zstandard', 'psutil', 'google', 'requests'}\n"
        "heavy |= {'prismdbg.capsule.manifest', 'prismdbg.jobs.storage.remote.object_store'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    command = [prismdbg_command[0], "-c", program]
    ran = subprocess.run(command, env=child_environment, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == "heavy: []\n"


def test_python_m_prismdbg_is_the_command_line(child_environment: dict[str, str]) -> None:
    line = [sys.executable, "-m", "prismdbg", "--no-such-option"]
    ended = subprocess.run(line, env=child_environment, capture_output=True, text=True, timeout=90)
    assert ended.returncode == ExitCode.USAGE
    assert "--no-such-option" in ended.stderr


TERMINATED_IN_A_DESTRUCTOR = """
import os, signal, time
from prismdbg.cli import main

class Ends:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.now = [time.monotonic() for _ in range(3)]  # what a handler raises here is discarded

def run(arguments):
    Ends()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
    return 7

main.run = run
main.main()
"""


def test_a_termination_that_is_discarded_on_its_way_comes_again(child_environment: dict[str, str]) -> None:
    line = [sys.executable, "-c", TERMINATED_IN_A_DESTRUCTOR]
    ended = subprocess.run(line, env=child_environment, capture_output=True, text=True, timeout=90)
    assert "Exception ignored in" in ended.stderr, "the test's own condition"
    assert ended.returncode == ExitCode.TERMINATED, ended.stderr


TERMINATED_AT_THE_END = """
import atexit, os, signal
from prismdbg.cli import main

atexit.register(os.kill, os.getpid(), signal.SIGTERM)
main.run = lambda arguments: 0
main.main()
"""
TERMINATED_TWICE = """
import atexit, os, signal, time
from prismdbg.cli import main

def tidy():
    time.sleep(0.2)
    print("tidied")

def run(arguments):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

atexit.register(tidy)
main.run = run
main.main()
"""


@pytest.mark.parametrize(("program", "printed"), [(TERMINATED_AT_THE_END, ""), (TERMINATED_TWICE, "tidied\n")])
def test_a_termination_while_the_interpreter_ends_is_quiet(
    child_environment: dict[str, str], program: str, printed: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], env=child_environment, capture_output=True, text=True, timeout=90
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.TERMINATED, printed, "")


def test_a_reader_that_has_enough_is_no_failure(
    tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]
) -> None:
    make_capsule(tmp_path / "capsule")
    shell = ["sh", "-c", '"$@" | true', "sh", *prismdbg_command, "inspect", "--json", str(tmp_path / "capsule")]
    ran = subprocess.run(shell, env=child_environment, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == ""


@pytest.mark.parametrize("asked", [["verify"], ["verify", "--json"]])
def test_a_verdict_is_the_same_for_a_reader_that_has_enough(
    asked: list[str], tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]
) -> None:
    make_capsule(tmp_path / "capsule")
    shell = ["bash", "-c", '"$@" 2>&1 | true; exit ${PIPESTATUS[0]}', "sh", *prismdbg_command, *asked]
    shell.append(str(tmp_path / "capsule"))
    assert subprocess.run(shell, env=child_environment, timeout=60).returncode == ExitCode.OK
    (tmp_path / "capsule" / "extra").write_text("x")
    assert subprocess.run(shell, env=child_environment, timeout=60).returncode == ExitCode.BAD_CAPSULE


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *((name, ExitCode.UNREAD) for name in ("diff", "doctor", "emulate", "replay", "setup", "sweep", "verify")),
        *((name, ExitCode.OK) for name in ("debug", "status")),  # they judge nothing
    ],
)
def test_a_reader_that_ends_before_the_verdict_has_not_heard_that_all_is_well(
    name: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "entries", lambda: {name: FakeEntry(raising(BrokenPipeError()), name)})
    monkeypatch.setattr(console, "readers_gone", lambda: [9])
    monkeypatch.setattr(console, "forget", lambda _: None)
    assert main.run([name]) == code


def test_an_output_that_is_full_is_one_error(
    tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]
) -> None:
    make_capsule(tmp_path / "capsule")
    with Path("/dev/full").open("w") as full:
        line = [*prismdbg_command, "verify", str(tmp_path / "capsule")]
        ran = subprocess.run(line, env=child_environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert ran.returncode == ExitCode.LACKING
        assert ran.stderr == "error: the output: No space left on device\n  try: free some space there\n"
        ran = subprocess.run(line, env=child_environment, stdout=full, stderr=full, text=True, timeout=60)
        assert ran.returncode == ExitCode.LACKING


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system")
def test_a_full_disk_beside_the_capsule_costs_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from prismdbg.cli.terminal.rank_output import keep_output

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "prismdbg-test", tmp_path], check=True)
    try:
        assert keep_output(tmp_path / "capsule", "said " * 100_000) is None
        assert "No space left on device" in capsys.readouterr().err and not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capsule(tmp_path / "capsule", IMAGE)
    assert main.run(["inspect", str(tmp_path / "capsule"), "--files"]) == 0
    said = capsys.readouterr().out
    for text in (
        "rank      0 of 2",
        "incident  nan at 2.2: all_reduce in world",
        "calls     0.1 to 2.2",
        "origin    checkpoint, contains the rank's raw memory",
        "groups    world: 0 1 (gloo)",
        "versions  torch 2.13.0",
        "note      made by a test",
        "checkpoint/pages-1.img",
    ):
        assert text in said


GPU = "GPU-5f0e5f0e-0000-1111-2222-333344445555"


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (
            {"pids": [1], "driver": "580.159.04", "gpus": [GPU]},
            f"GPU state  of 1 process, on {GPU}, saved with NVIDIA's driver 580.159.04\n"
            "           a replay needs the same driver and GPUs",
        ),
        (
            {"pids": [1, 2], "driver": "", "gpus": []},
            "GPU state  of 2 processes, on unknown GPUs, saved with an unknown version of NVIDIA's driver\n"
            "           a replay needs the same driver and GPUs",
        ),
        (None, "GPU state  unknown: the checkpoint does not name the driver and the GPUs"),
        (
            {"pids": [1], "driver": "580.159.04", "gpus": [GPU, GPU]},
            f"GPU state  of 1 process, on {GPU}, saved with NVIDIA's driver 580.159.04\n"
            "           a replay needs the same driver and GPUs",
        ),
    ],
)
@pytest.mark.parametrize("name", ["capsule", "capsule.tar.zst"])
def test_inspect_names_the_driver_and_the_gpus_that_a_checkpoint_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: dict[str, object] | None, shown: str, name: str
) -> None:
    on_gpu = replace(IMAGE, device_kinds=("cuda",))
    capsule = make_capsule(tmp_path / "capsule", on_gpu, device="cuda:0", gpu=json.dumps(part) if part else "")
    pack(capsule.path, tmp_path / "capsule.tar.zst")
    assert main.run(["inspect", str(tmp_path / name)]) == 0
    assert f"\n{shown}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "part", [{"x": 1}, {"pids": [], "driver": "1", "gpus": []}, {"pids": [1, 1], "driver": "1", "gpus": []}]
)
def test_inspect_shows_the_rest_where_the_state_of_a_gpu_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: dict[str, object]
) -> None:
    make_capsule(tmp_path / "capsule", replace(IMAGE, device_kinds=("cuda",)), device="cuda:0", gpu=json.dumps(part))
    assert main.run(["inspect", str(tmp_path / "capsule")]) == 0
    said = capsys.readouterr().out
    assert "GPU state  the checkpoint" in said and "cannot be read" in said and "\norigin " in said


@pytest.mark.parametrize("manifest", [MANIFEST, IMAGE, replace(MANIFEST, device_kinds=("cuda",))])
def test_without_the_state_of_a_gpu_inspect_does_not_speak_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], manifest: Manifest
) -> None:
    make_capsule(tmp_path / "capsule", manifest)
    assert main.run(["inspect", str(tmp_path / "capsule")]) == 0
    assert "GPU" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["capsule", "capsule.tar.zst"])
def test_inspect_has_the_size_that_list_has(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    pack(capsule.path, tmp_path / "capsule.tar.zst")
    assert main.run(["list", str(tmp_path / name)]) == 0
    titles, row = capsys.readouterr().out.splitlines()
    assert "on disk" in titles
    (listed,) = re.findall(r"\d[\d.]* [KMG]?i?B", row)
    assert main.run(["inspect", str(tmp_path / name)]) == 0
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("size "))
    assert f"{console.size(capsule.manifest.size_bytes)} of files, {listed} on disk" in said


def test_inspect_as_json_is_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    pack(capsule.path, tmp_path / "capsule.tar.zst")
    for path in ("capsule", "capsule.tar.zst"):
        assert main.run(["inspect", str(tmp_path / path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == capsule.manifest.to_json()


def test_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    assert main.run(["verify", str(capsule.path)]) == 0
    assert capsys.readouterr().out == "note  prismdbg/manifest.json: made by a test\n"
    (capsule.path / "extra").write_text("x")
    assert main.run(["verify", "--json", str(capsule.path)]) == ExitCode.BAD_CAPSULE
    said = capsys.readouterr()
    assert json.loads(said.out)["whole"] is False
    assert "try: " in said.err


def test_pack_and_unpack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    assert main.run(["pack", str(capsule.path)]) == 0
    said = capsys.readouterr()
    packed = tmp_path / "capsule.tar.zst"
    assert said.out == f"{packed}\n"
    assert "raw memory" in said.err
    assert main.run(["unpack", str(packed), "-o", str(tmp_path / "again")]) == 0
    verify(tmp_path / "again")
    assert main.run(["unpack", str(packed)]) == ExitCode.USAGE  # `capsule` is there
    assert main.run(["unpack", "--max-size", "1K", str(packed), "-o", str(tmp_path / "small")]) == ExitCode.BAD_CAPSULE
    assert {path.name for path in tmp_path.iterdir()} == {"capsule", "capsule.tar.zst", "again"}


def test_a_hostile_archive_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.tar.zst").write_bytes(b"not zstd at all")
    for command in ("inspect", "verify", "unpack"):
        assert main.run([command, str(tmp_path / "bad.tar.zst")]) == ExitCode.BAD_CAPSULE
        assert [line[:6] for line in capsys.readouterr().err.splitlines()] == ["error:", "  try:"]
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tar.zst"]


def test_list_and_rm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        make_capsule(tmp_path / f"c{number}", MANIFEST)
    assert main.run(["list", "--json", str(tmp_path)]) == 0
    assert [Path(item["path"]).name for item in json.loads(capsys.readouterr().out)] == ["c0", "c1", "c2"]
    assert main.run(["rm", "--dry-run", "--keep", "1", str(tmp_path)]) == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert main.run(["rm", "--keep", "2", str(tmp_path)]) == 0
    assert main.run(["rm", str(tmp_path / "c1")]) == 0
    assert main.run(["rm", str(tmp_path / "c1")]) == ExitCode.USAGE
    assert [path.name for path in tmp_path.iterdir()] == ["c2"]
    assert main.run(["list", str(tmp_path)]) == 0
    assert "nan: all_reduce in world" in capsys.readouterr().out


def test_rm_writes_a_name_of_several_lines_in_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a\nremoved: all", "b\nremoved: all"):
        make_capsule(tmp_path / name, MANIFEST)
    assert main.run(["rm", "--dry-run", "--keep", "1", str(tmp_path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "removed: all" in line)
    assert line.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "wanted"), [("1000", 1000), ("4GiB", 4 << 30), ("512M", 512 << 20), ("1 kb", 1000), ("2tib", 2 << 40)]
)
def test_sizes(text: str, wanted: int) -> None:
    assert size(text) == wanted


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1.5.1G", "1X", "1GG", "٣"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        size(text)


@pytest.mark.parametrize(
    ("text", "named"), [("0,2", (0, 2)), ("0-3", (0, 1, 2, 3)), ("5,5", (5,)), ("3, 1,", (1, 3)), ("2-2", (2,))]
)
def test_ranks(text: str, named: tuple[int, ...]) -> None:
    assert ranks(text) == named


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no rank"),
        (",", "contains no rank"),
        ("all", "is not a list of ranks"),
        ("-1", "is not a list of ranks"),
        ("1-", "is not a list of ranks"),
        ("²", "is not a list of ranks"),
        ("٣", "is not a list of ranks"),
        ("999999999999", "is not a list of ranks"),
        ("3-1", "is in descending order"),
        ("0-9999999", "names more than 65,536 ranks"),
    ],
)
def test_what_names_no_ranks(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        ranks(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 classes"), (1, "1 class"), (2, "2 classes"), (8192, "8,192 classes")]
)
def test_one_of_a_kind_is_said_as_one(number: int, text: str) -> None:
    assert counted(number, "class", "classes") == text
    assert counted(number, "rank") == text.replace("classes", "ranks").replace("class", "rank")


def test_moments_on_the_command_line() -> None:
    assert moment("12.345") == Moment(12, 345)
    with pytest.raises(WrongValue, match="'later' is not a moment") as wrong:
        moment("later")
    assert "12.345.6" in wrong.value.hint


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (355 << 20, "355.0 MiB")]
)
def test_sizes_for_people(number: int, text: str) -> None:
    assert console.size(number) == text


def test_text_of_a_capsule_may_not_steer_the_terminal() -> None:
    assert console.plain("a\x1b[31mb\r\u202e\udcffc\td\ne") == "a\ufffd[31mb\ufffd\ufffd\ufffdc\ufffdd\ne"


def test_a_table_cuts_nothing_and_stays_on_its_lines() -> None:
    table = console.columns(("n", "what"), [("1", "a\nb"), ("10", "x" * 200)], right=("n",))
    assert table.splitlines() == [" n  what", " 1  a b", "10  " + "x" * 200]


@pytest.mark.parametrize(("text", "value"), [("30", 30), ("0.5", 0.5), ("45s", 45), ("10m", 600), ("2h", 7200), (9, 9)])
def test_times_to_wait(text: str | float, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "0", "", "s", "1e300", "1e9h", "soon", "1 2"])
@pytest.mark.parametrize("command", ["replay", "debug", "capture"])
def test_what_is_no_time_to_wait_is_wrong_usage(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--rank=0", f"-o{tmp_path}/capsule"] if command == "capture" else []
    assert main.run([command, str(tmp_path), f"--timeout={text}", *more]) == ExitCode.USAGE
    assert "is not a duration\n  try: write 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [("recrod", "unknown command 'recrod'; did you mean 'record'?"), ("xyzzy", "unknown command 'xyzzy'\n")],
)
def test_a_mistyped_command_gets_a_suggestion(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([typed, "run"]) == 2
    assert said in capsys.readouterr().err


def test_open_imports_nothing_that_a_recorded_run_does_not_need(child_environment: dict[str, str]) -> None:
    """A third of the time that the table of a run took was that of what makes capsules and graphs, and a tenth that of
    the rest."""
    code = "import prismdbg.cli.commands.open, sys; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=child_environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    heavy = ("jobs.rank_capsule", "jobs.capture.assemble", "job_graph.builder", "jobs.replay.replay", "checkpoint.criu")
    of_others = ("importers.formats", "simulate.graph.graph_file", "sweep.stored", "sweep.folder")
    later = ("diagnosis.why", "capsule.secrets.masking")  # of the screen; of `record`
    assert not [name for name in (*heavy, *of_others, *later) if f"'prismdbg.{name}'" in loaded]
    assert not [name for name in ("psutil", "google.protobuf") if f"'{name}'" in loaded]


@pytest.mark.parametrize(("objects", "said"), [(1, "1 pickled object differs, "), (2, "2 pickled objects differ, ")])
def test_pickled_objects_that_differ_are_counted(objects: int, said: str) -> None:
    tally = {"compared": 3, "fingerprints": 3, "synthesized": 0, "object_notes": objects}
    assert next(_of_tally(tally)).startswith(said)
    assert said.replace(" differ", " that differ").removesuffix(", ") in tally_text(tally)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_replay_says_at_its_start_is_not_said_again_with_its_verdict(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = "the replay may see files that were created or changed after the start moment"

    @contextmanager
    def opened_replay(_request: object, say: Callable[[str], None]) -> Iterator[SimpleNamespace]:
        say(warning)
        yield SimpleNamespace(output=SimpleNamespace(text=str), runtime="local")

    verdict = Verdict(outcome=Outcome.IDENTICAL, moment="1.1", notes=[warning, "another note"])
    monkeypatch.setattr(replay, "open_replay", opened_replay)
    monkeypatch.setattr(replay, "run_to_end", lambda *_args, **_options: verdict)
    capsule = make_capsule(tmp_path / "made", MANIFEST)
    assert main.run(["replay", str(capsule.path), *(["--json"] if as_json else [])]) == 0
    told = capsys.readouterr()
    assert told.err.count(warning) == 1
    assert "another note" in (told.out if as_json else told.err)
    assert (warning in told.out) == as_json
