"""Reading a variable that was left out of a capsule as a secret: an error by name, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
INJECT = ROOT / "prismdbg" / "rank" / "inject"


def run(code: str, *files: str) -> str:
    """As a replay from the start does it: `sitecustomize` is there first."""
    told = {"PRISMDBG_REDACTED": "API_KEY,HF_TOKEN,WANDB_API_KEY", "PRISMDBG_REDACTED_FILES": json.dumps(files)}
    done = subprocess.run(
        [sys.executable, "-c", f"import os\n{code}"],
        env={"PYTHONPATH": f"{INJECT}:{ROOT}", **told, "PATH": "/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "reading",
    ["os.environ['API_KEY']", "os.getenv('API_KEY')", "os.environ.get('API_KEY', 1)", "os.environ.pop('API_KEY', 1)"],
)
def test_reading_it_says_so_by_name(reading: str) -> None:
    said = run(reading)
    assert "RedactedVariable: the environment variable API_KEY is not in this capsule: it may be a secret" in said


def test_also_as_bytes() -> None:
    assert "variable HF_TOKEN is not in this capsule" in run("os.getenvb(b'HF_TOKEN')")


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print('API_KEY' in os.environ, 'OTHER' in os.environ)", "True False"),
        ("print(os.environ['PATH'], os.environ.get('OTHER', 'default'))", "/bin default"),
        ("print('API_KEY' in dict(os.environ), 'PRISMDBG_REDACTED' in os.environ)", "False False"),
        ("os.environ['API_KEY'] = 'mine'; print(os.environ['API_KEY'])", "mine"),
        ("del os.environ['API_KEY']; print('API_KEY' in os.environ, os.environ.get('API_KEY'))", "False None"),
        ("import subprocess; print(subprocess.run(['true'], env={**os.environ}).returncode)", "0"),
        ("print(os.environ['WANDB_API_KEY'], 'COMET_API_KEY' in os.environ)", f"{'0' * 40} False"),  # of a tracker
    ],
)
def test_all_else_is_as_ever(code: str, printed: str) -> None:
    assert run(code) == f"{printed}\n"


@pytest.fixture
def netrc(tmp_path: Path) -> Path:
    """Empty, as a replay lays it; a link leads there, too."""
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    (tmp_path / "home" / ".netrc").touch()
    return tmp_path / "home" / ".netrc"


@pytest.mark.parametrize(
    "reading",
    [
        "open(PATH)",
        "open(PATH, 'rb')",
        "os.open(PATH, os.O_RDONLY)",
        "__import__('pathlib').Path(PATH).read_text()",
        "__import__('netrc').netrc(PATH)",
        "open(os.fsencode(PATH))",
        "os.chdir(os.path.dirname(PATH)), open('.netrc')",
        "open(PATH.replace('home', 'link'))",
    ],
)
def test_reading_a_file_of_credentials_says_how_to_bring_it(reading: str, netrc: Path) -> None:
    said = run(f"PATH = {str(netrc)!r}\n{reading}", str(netrc))
    assert f"RedactedFile: {netrc} is not in this capsule: it contains credentials" in said
    assert f"--with-file {netrc}" in said


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print(os.path.exists(PATH), open(__import__('os').devnull).read())", "True "),
        ("open(PATH, 'w').write('mine'); print(open(PATH).read())", "mine"),
        ("open(PATH + '2', 'w').write('other'); print(open(PATH + '2').read())", "other"),
        ("print('PRISMDBG_REDACTED_FILES' in os.environ)", "False"),
    ],
)
def test_all_other_files_are_as_ever(code: str, printed: str, netrc: Path) -> None:
    assert run(f"PATH = {str(netrc)!r}\n{code}", str(netrc)) == f"{printed}\n"
