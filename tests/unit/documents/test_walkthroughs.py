"""Walkthroughs and their pictures belong together, and the keys they name do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prismdbg_tui.recorded_job.keys import JOB_ACTIONS
from prismdbg_tui.session.actions import ACTIONS
from prismdbg_tui.timeline.lanes_drawing import FEW_STOPS

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
_PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")
_ABSOLUTE = re.compile(r"[(\"']*/[\w.-]+/")
_ROW = re.compile(r"^\| (`[^|]+) \| .+ \|$", re.MULTILINE)


def pictures(page: Path) -> list[Path]:
    return [page.parent / name for name in _PICTURE.findall(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_picture_that_is_shown_is_there(page: Path) -> None:
    assert not [picture for picture in pictures(page) if not picture.is_file()]


def headings(page: Path) -> set[str]:
    """As GitHub makes anchors of them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("[A-Z]*.md")], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(page.read_text()):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), name
        assert not anchor or anchor in headings(target), f"{name}#{anchor}"


def test_every_page_of_the_documentation_is_listed() -> None:
    links = _LINK.findall((ROOT / "docs" / "index.md").read_text())
    listed = {name for name, _ in links if not name.startswith("../")}
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_walkthrough_says_how_many_places_of_breakpoints_have_the_large_sign() -> None:
    page = (ROOT / "examples" / "incidents" / "nan" / "README.md").read_text()
    assert f"`●` if there are at most {FEW_STOPS} such places" in page


def test_every_picture_is_shown() -> None:
    there = {path.resolve() for path in (ROOT / "examples").rglob("*.svg")}
    assert there == {path.resolve() for page in PAGES for path in pictures(page)}


def test_pictures_are_of_the_screen_alone() -> None:
    for page in PAGES:
        for picture in pictures(page):
            text = picture.read_text()
            assert text.startswith("<svg") and "<script" not in text and "http" not in text.split(">", 1)[1]


def test_pictures_show_no_path_of_the_machine_they_were_taken_on() -> None:
    for picture in (path for page in PAGES for path in pictures(page)):
        words = " ".join(re.findall(r">([^<]*)<", picture.read_text())).split()
        assert {word for word in words if _ABSOLUTE.match(word)} <= {word for word in words if "/opt/train/" in word}


def test_the_documented_keys_are_those_of_the_screen() -> None:
    named = [
        key
        for row in _ROW.findall((ROOT / "docs" / "debugging.md").read_text())
        for key in re.findall("`([^`]+)`", row)
    ]
    keys = {key for action in (*ACTIONS, *JOB_ACTIONS) for key in action.keys.split(",")}
    letters = [key for key in named if len(key) == 1 and key.isalpha()]
    assert len(letters) > 20 and not [key for key in letters if key not in keys]
