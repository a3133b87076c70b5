"""What the user's `config.toml` says of screens is checked before one starts, whichever it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsules import make_capsule
from incident_run import write_run
from prismdbg_tui.browser.server import GuardedServer
from sweeps import make_sweep

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.graph_file import save
from prismdbg.simulate.graph.mesh import Mesh


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "prismdbg").mkdir()
    return tmp_path / "prismdbg" / "config.toml"


@pytest.fixture
def shown(tmp_path: Path) -> dict[str, Path]:
    """Of each screen what opens it: of a capsule, of a recorded job, of a sweep, of an emulated job."""
    graph = tmp_path / "graph.npz"
    save(gpt_job(Mesh.parse("pp=2,dp=2"), GptShape(layers=2, hidden=64, microbatches=2)), graph)
    return {
        "capsule": make_capsule(tmp_path / "capsule").path,
        "job": write_run(tmp_path / "run").path,
        "sweep": make_sweep(tmp_path / "sweep"),
        "overview": graph,
    }


@pytest.mark.parametrize("screen", ["capsule", "job", "sweep", "overview"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('theme = "nordx"\n', "unknown theme 'nordx'; did you mean 'nord'?"),
        ('[keys]\nnextx = "f10"\n', "unknown action 'nextx'"),
        ('[keys.job]\nsort = "o"\n', "job: unknown action 'sort'"),
    ],
)
def test_what_is_wrong_for_a_screen_is_one_error_before_any_starts(
    config: Path, capfd: pytest.CaptureFixture[str], shown: dict[str, Path], screen: str, text: str, said: str
) -> None:
    config.write_text(text)
    picture = config.with_name("picture.svg")
    assert main.run(["open", str(shown[screen]), "--picture", str(picture)]) == ExitCode.USAGE
    written = capfd.readouterr().err
    assert f"error: {config}: {said}" in written and "try: use one of" in written and "Traceback" not in written
    assert not picture.exists()


def test_what_is_wrong_for_a_screen_is_said_before_it_is_served(
    config: Path, capfd: pytest.CaptureFixture[str], shown: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedServer, "serve", lambda _: pytest.fail("it is served"))
    config.write_text('theme = "nordx"\n')
    assert main.run(["open", str(shown["capsule"]), "--web"]) == ExitCode.USAGE
    assert "unknown theme 'nordx'" in capfd.readouterr().err
