"""Shell completion, asked for by the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from prismdbg.cli.main import cli, run

BASH = """
eval "$(prismdbg completion bash)"
COMP_WORDS=({words}); COMP_CWORD={at}; _prismdbg_completion prismdbg; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = """
prismdbg completion fish | source
complete -C "{line}"
"""


@pytest.fixture
def environment(tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]) -> dict[str, str]:
    """With `prismdbg` as a program."""
    program = tmp_path / "bin" / "prismdbg"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom prismdbg.cli.main import main\nmain()\n")
    program.chmod(0o755)
    path = f"{program.parent}:{child_environment['PATH']}"
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}  # fish makes a folder of its own there
    return {**child_environment, **own, "PATH": path}


def said(shell: str, text: str, environment: dict[str, str]) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    ran = subprocess.run([shell, "-c", text], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout.split("\n")[:-1]


def test_bash_completes_commands_options_and_choices(environment: dict[str, str]) -> None:
    assert sorted(said("bash", BASH.format(words="prismdbg rep", at=1), environment)) == ["replay", "report"]
    assert said("bash", BASH.format(words="prismdbg why --js", at=2), environment) == ["--json"]
    formats = said("bash", BASH.format(words="prismdbg export --format fl", at=3), environment)
    assert formats == ["flight-recorder", "flight-recorder-json"]


def test_fish_completes_commands_with_their_summaries(environment: dict[str, str]) -> None:
    lines = said("fish", FISH.format(line="prismdbg rep"), environment)
    assert [line.split("\t")[0] for line in lines] == ["replay", "report"]
    assert "about an incident" in lines[1]


def test_zsh_reads_its_script(environment: dict[str, str]) -> None:
    assert said("zsh", "f=$HOME/_prismdbg; prismdbg completion zsh > $f; head -1 $f; zsh -n $f", environment) == [
        "#compdef prismdbg"
    ]


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", "data/bash-completion/completions/prismdbg"),
        ("zsh", "data/zsh/site-functions/_prismdbg"),
        ("fish", "config/fish/completions/prismdbg.fish"),
    ],
)
def test_it_is_installed_where_the_shell_looks(
    shell: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert run(["completion", shell, "--install"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / place}\n"
    assert (tmp_path / place).read_text().rstrip() == script.rstrip()


def test_bash_reads_the_installed_script(environment: dict[str, str], tmp_path: Path) -> None:
    place = "~/.local/share/bash-completion/completions/prismdbg"
    text = f"prismdbg completion bash --install 2>/dev/null; . {place}; complete -p prismdbg"
    assert said("bash", text, environment)[-1] == "complete -o nosort -F _prismdbg_completion prismdbg"


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_place_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert run(["completion", "bash", "--install"]) == 2
    assert "cannot be created: Not a directory" in capsys.readouterr().err


def test_commands_are_completed_without_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "get_command", lambda *_: pytest.fail("a command was loaded"))
    items = cli.shell_complete(click.Context(cli, info_name="prismdbg"), "")
    assert {"record", "completion", "graph"} <= {item.value for item in items}
