"""What the screen looks like, cell by cell: SVG pictures, compared after what is of no account is taken out.

`--update-golden` writes them again; look at what changed before you commit it.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from played import PlayedRank, has_values, large_job, live_over, screen, small_capsule, stopped, until
from prismdbg_tui.compared.app import SweepApp
from prismdbg_tui.overview.app import OverviewApp
from prismdbg_tui.overview.rank_screen import RankScreen
from prismdbg_tui.recorded_job.app import JobApp
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.views import Phase
from shown import running
from sweeps import make_sweep

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.jobs.run_overview import RunOverview, overview_of
from prismdbg.jobs.storage.run_report import RankState
from prismdbg.sweep.stored import read_sweep
from tests.unit.logs import MILLISECOND_NS, Job

PICTURES = Path(__file__).parents[2] / "golden" / "screen"
SIZES = {"80x24": (80, 24), "120x36": (120, 36), "160x45": (160, 45)}


def settled(svg: str) -> str:
    """Without the unique number of the picture."""
    return re.sub(r"terminal-\d+", "terminal", svg)


def compare(name: str, svg: str, update: bool) -> None:
    path = PICTURES / f"{name}.svg"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg)
    assert path.exists(), f"there is no picture {path.name}: run with --update-golden and look at it"
    assert svg == path.read_text(), f"{path.name} looks otherwise: run with --update-golden, then look at the change"


@pytest.mark.parametrize("size", ["80x24", "160x45"])
def test_looking(tmp_path: Path, size: str, pytestconfig: pytest.Config) -> None:
    async def picture() -> str:
        app = PrismApp(small_capsule(tmp_path), "capsule")
        async with screen(app, SIZES[size]) as pilot:
            await until(lambda: has_values(app), pilot)
            return settled(app.export_screenshot())

    compare(f"looking-{size}", asyncio.run(picture()), pytestconfig.getoption("--update-golden"))


@pytest.mark.parametrize("size", ["80x24", "160x45"])
def test_stopped(tmp_path: Path, size: str, pytestconfig: pytest.Config) -> None:
    async def picture() -> str:
        capsule = small_capsule(tmp_path)
        rank = PlayedRank([stopped("1.2", 2)])
        app = PrismApp(capsule, "capsule", live=live_over(capsule, rank))
        async with screen(app, SIZES[size]) as pilot:
            await until(lambda: app.state.phase is Phase.STOPPED, pilot)
            await pilot.press("n")
            await until(lambda: str(app.state.moment) == "1.2", pilot)
            return settled(app.export_screenshot())

    compare(f"stopped-{size}", asyncio.run(picture()), pytestconfig.getoption("--update-golden"))


@pytest.mark.parametrize("size", ["80x24", "160x45"])
def test_all_ranks(size: str, pytestconfig: pytest.Config) -> None:
    async def picture() -> str:
        app = OverviewApp(large_job())
        async with running(app, SIZES[size]) as pilot:
            await until(lambda: app.path is not None, pilot)
            await pilot.press("m", "e", "g")
            return settled(app.export_screenshot())

    compare(f"overview-{size}", asyncio.run(picture()), pytestconfig.getoption("--update-golden"))


@pytest.mark.parametrize("size", ["80x24", "160x45"])
def test_all_ranks_of_a_recorded_job(size: str, pytestconfig: pytest.Config) -> None:
    shown = late_job()

    async def picture() -> str:
        app = JobApp(shown, lambda: shown)
        async with running(app, SIZES[size]) as pilot:
            await pilot.press("home")
            await pilot.pause()
            return settled(app.export_screenshot())

    compare(f"recorded-{size}", asyncio.run(picture()), pytestconfig.getoption("--update-golden"))


def late_job() -> RunOverview:
    """Rank 2 comes late at first, then rank 1."""
    job = Job(4)
    for late in (2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1):
        job.call(late_ns={late: 50 * MILLISECOND_NS})
        job.steps(1)
    states = {
        rank: RankState(
            name=str(rank), state="ended", moment="12.1", collectives=24, in_flight=0, steps=12, window="-",
            log_bytes=1, payload_bytes=0, lost="",
        )
        for rank in range(4)
    }  # fmt: skip
    return overview_of(Path("run"), Evidence(logs=job.logs, world_size=4), states, dict.fromkeys(range(4), 1 << 30))


@pytest.mark.parametrize("size", ["80x24", "120x36"])
def test_the_configurations_of_a_sweep(tmp_path: Path, size: str, pytestconfig: pytest.Config) -> None:
    make_sweep(tmp_path / "s")

    async def picture() -> str:
        app = SweepApp(lambda: read_sweep(tmp_path / "s"))
        async with running(app, SIZES[size]) as pilot:
            await pilot.press("down", "down")  # one that failed
            await pilot.pause()
            return settled(app.export_screenshot())

    compare(f"sweep-{size}", asyncio.run(picture()), pytestconfig.getoption("--update-golden"))


def test_a_simulated_rank(pytestconfig: pytest.Config) -> None:
    async def picture() -> str:
        app = OverviewApp(large_job(), at=4716)
        async with running(app, SIZES["160x45"]) as pilot:
            await pilot.press("t")
            await until(lambda: isinstance(app.screen, RankScreen), pilot)
            await pilot.press("full_stop", "full_stop")
            await pilot.pause()
            return settled(app.export_screenshot())

    compare("simulated-rank-160x45", asyncio.run(picture()), pytestconfig.getoption("--update-golden"))
