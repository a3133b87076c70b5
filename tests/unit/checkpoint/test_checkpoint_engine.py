"""One seam for checkpoint engines: no other code knows which one is used, and what is needed of one is little."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path

import pytest

from prismdbg.checkpoint import bundle, choice, criu, criu_engine, engine, images
from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.engine import DumpReport, Engine, Unrestorable, Use
from prismdbg.errors import FacilityError

ROOT = Path(__file__).parents[3]
OF_THE_ENGINE = ("prismdbg/checkpoint/", "images/starter/criu.py", "images/criu/")
SEAM = {"engine", "choice", "bounded", "cache", "gpu", "gpu_part"}
# Why a text names the program. Names of variables, functions and modules never do.
NAMED_IN_TEXTS = {
    "prismdbg/runtime/facilities.py": "`doctor` says which program is missing, and how to get it",
    "prismdbg/jobs/storage/remote/oci_layout.py": "annotations of an image say which version made its checkpoint",
    "prismdbg/jobs/record/setup.py": "`setup` says which program it builds",
    "prismdbg/cli/registry.py": "the one-line help of `setup`",
    "prismdbg/cli/commands/setup.py": "the help of `setup`",
}
CHOOSES = "images/starter/choice.py"  # as `prismdbg/checkpoint/choice.py` on the host
CRIU = Criu(folder=Path("/criu"), version="4.2", loader="ld", program="criu", libraries="lib", bindings="python")


def sources(word: str) -> list[Path]:
    """Those that hold this word, and are none of the engine's own."""
    paths = [path for folder in ("prismdbg", "tui", "images") for path in sorted((ROOT / folder).rglob("*.py"))]
    others = [path for path in paths if not path.relative_to(ROOT).as_posix().startswith(OF_THE_ENGINE)]
    return [path for path in others if word in path.read_text().lower()]


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    """Those that name the program."""
    with path.open("rb") as file:
        return [token for token in tokenize.tokenize(file.readline) if re.search("criu", token.string, re.IGNORECASE)]


def test_no_other_code_names_the_engine() -> None:
    for path in sources("criu"):
        name = path.relative_to(ROOT).as_posix()
        if name == CHOOSES:
            continue
        found = [f"{name}:{token.start[0]}: {token.line.strip()}" for token in tokens(path)]
        if name in NAMED_IN_TEXTS:
            found = [row for row, token in zip(found, tokens(path), strict=True) if token.type == tokenize.NAME]
        assert not found


@pytest.mark.parametrize("name", [*NAMED_IN_TEXTS, CHOOSES])
def test_every_exception_is_needed(name: str) -> None:
    assert tokens(ROOT / name)


def test_no_other_code_reaches_past_the_seam() -> None:
    for path in sources("prismdbg.checkpoint"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prismdbg.checkpoint"):
                last = (node.module or "").rpartition(".")[2]
                parts = {alias.name for alias in node.names} if last == "checkpoint" else {last}
                assert parts <= SEAM, path


def test_little_is_asked_of_an_engine() -> None:
    asked = [name for name, value in vars(Engine).items() if callable(value) and not name.startswith("_")]
    assert len(asked) <= 5


def test_the_starter_knows_the_engine_that_the_host_uses() -> None:
    assert f'"{choice.NAME}": ' in (ROOT / CHOOSES).read_text()


def test_each_use_has_its_own_way_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reader", "find", "build"):
        found = Criu(folder=Path(name), version="4", loader="", program="", libraries="", bindings="")
        monkeypatch.setattr(bundle, name, lambda found=found: found)
    assert [choice.find(use).program.folder.name for use in Use] == ["reader", "find", "build"]
    monkeypatch.setattr(bundle, "reader", lambda: None)
    with pytest.raises(FacilityError, match="no CRIU on this machine"):
        choice.find(Use.READ)


def test_what_a_dump_cost_is_read_when_the_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    lost = Unrestorable(pid=7, number=3, path="/proc/8/maps")
    cost = DumpReport(images=tmp_path, images_bytes=1, frozen_ns=2, pages_bytes=3)
    monkeypatch.setattr(criu, "dump_only", lambda *_, **how: done.append(f"dumped {how['leave_running']}"))
    monkeypatch.setattr(criu, "report", lambda *_: done.append("read") or cost)
    monkeypatch.setattr(images, "unrestorable", lambda *_: (lost,))
    report = criu_engine.CriuEngine(CRIU).dump(7, tmp_path, timeout_s=5)
    assert done == ["dumped True"]
    assert report().unrestorable == (lost,) and report().pages_bytes == 3
    assert done[1:] == ["read", "read"]


def test_the_protocol_is_kept() -> None:
    found: engine.Engine = criu_engine.CriuEngine(CRIU)
    assert found.program.name == choice.NAME and found.program.command[0] == "/criu/ld"
