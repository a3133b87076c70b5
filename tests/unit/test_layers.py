"""What import-linter cannot see: what is really loaded when a part is imported, in a process of its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "prismdbg"
BELOW_RANK = ("rank", "settings", "capsule", "protocol", "expr", "model")
# memory_viz and torch's analyser of Flight Recorder's dumps read nothing else
WRITE_PICKLES = (PACKAGE / "memory" / "snapshot.py", PACKAGE / "exporters" / "flight_recorder.py")
# The replayed rank itself reads what multiprocessing gave it, as its program did.
READS_PICKLES = (PACKAGE / "rank" / "replay" / "stand_ins.py",)
FOREIGN = (
    "docker",
    "textual",
    "yaml",
    "click",
    "rich",
    "psutil",
    "zstandard",
    "google",
    "requests",
    "hypothesis",
    "sklearn",
    "scipy",
)


def modules(*packages: str) -> list[str]:
    """Every module in these packages; what is only ever run as a script is left out."""
    paths = [path for package in packages for path in sorted((PACKAGE / package).rglob("*.py"))]
    kept = [path for path in paths if path.name != "sitecustomize.py"]
    dotted = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in kept]
    return [name.removesuffix(".__init__") for name in dotted]


def loaded_by(names: list[str], environment: dict[str, str]) -> set[str]:
    """The names in sys.modules after these imports."""
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    command = [sys.executable, "-c", program, *names]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


def test_what_lives_in_the_job_brings_nothing_of_ours(child_environment: dict[str, str]) -> None:
    loaded = loaded_by(modules(*BELOW_RANK), child_environment)
    assert "torch" in loaded
    assert loaded & set(FOREIGN) == set()
    ours = {name.split(".")[1] for name in loaded if name.startswith("prismdbg.")}
    assert ours <= {*BELOW_RANK, "errors"}


def test_the_host_side_never_loads_torch(child_environment: dict[str, str]) -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    host = sorted(packages - {"rank"})
    loaded = loaded_by(modules(*host), child_environment)
    assert "prismdbg.cli.main" in loaded
    assert loaded & {"torch", "sklearn"} == set()


def test_the_host_side_reads_logs_as_columns() -> None:
    """A log of weeks does not fit in memory as objects. A replayed rank answers from the short one of its capsule."""
    reader = "prismdbg.capsule.log.reader"
    decoding = {f"{reader}.read_log", f"{reader}.LogReader", reader}
    found = {
        path.relative_to(PACKAGE.parent).parts[1]
        for folder in (PACKAGE, PACKAGE.parent / "tui" / "prismdbg_tui")
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        if {f"{getattr(node, 'module', None) or ''}.{alias.name}".lstrip(".") for alias in node.names} & decoding
    }
    assert found == {"rank", "capsule"}, "`log.columns` reads any length; `LogFollower` follows"


def test_importing_prismdbg_is_cheap(child_environment: dict[str, str]) -> None:
    """It is imported inside training jobs, by people who call `prismdbg.step`."""
    loaded = loaded_by(["prismdbg"], child_environment)
    assert {name for name in loaded if name.startswith("prismdbg")} == {"prismdbg"}
    assert loaded & {"torch", "json", "asyncio", *FOREIGN} == set()


@pytest.mark.parametrize("package", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
def test_nothing_is_ever_unpickled(package: str) -> None:
    """No import and no call that runs what a file says: not of a capsule, not of a log, not of anything."""
    for path in (PACKAGE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            allowed = {"pickle"} if path in (*WRITE_PICKLES, *READS_PICKLES) else set()
            found = _imports(node) & {"pickle", "cPickle", "marshal", "shelve", "dill"}
            assert found <= allowed, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "torch.load"), f"{path}:{node.lineno}"
                assert not called.startswith("pickle.") or called == "pickle.dumps", f"{path}:{node.lineno}"


def test_nothing_is_mapped() -> None:
    """A file that is mapped ends the process with a signal where it is cut, its disk is full, or its server is gone:
    a log of the job, what is read of RUN, and a capsule."""
    folders = (PACKAGE, PACKAGE.parent / "tui" / "prismdbg_tui")
    found = [
        path.relative_to(PACKAGE.parent).as_posix() for folder in folders for path in folder.rglob("*") if _maps(path)
    ]
    assert found == []


def _maps(path: Path) -> bool:
    is_source = path.suffix in (".py", ".cpp", ".h")
    return (
        is_source
        and re.search(r"\bimport mmap\b|\bmmap(?:64|_mode)?[(=]|MAP_SHARED|np\.memmap", path.read_text()) is not None
    )


def _imports(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return set()
