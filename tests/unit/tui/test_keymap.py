"""Keys of one's own, and the table they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from prismdbg_tui.recorded_job.keys import JOB_ACTIONS
from prismdbg_tui.session.action_handlers import ActionHandlers
from prismdbg_tui.session.actions import ACTIONS
from prismdbg_tui.session.keymap import RESERVED, in_force, read_keys
from prismdbg_tui.session.visible_panes import NUMBERED, key_of

from prismdbg.errors import UsageError


def written(folder: Path, text: str) -> Path:
    path = folder / "keys.toml"
    path.write_text(text)
    return path


def test_no_file_changes_nothing(tmp_path: Path) -> None:
    assert read_keys(tmp_path / "keys.toml") == {}
    assert in_force({})["next"] == "n"


def test_keys_as_they_are_typed(tmp_path: Path) -> None:
    chosen = read_keys(written(tmp_path, 'next = "F10"\nsearch = ["ctrl+f", "%"]\n'))
    assert chosen == {"next": "f10", "search": "ctrl+f,percent_sign"}
    assert in_force(chosen)["search"].endswith("%")


def test_one_key_is_written_in_many_ways(tmp_path: Path) -> None:
    text = 'next = "shift+e"\nstep = "ctrl+G"\nup = ["ü", "space"]\ndown = "alt+n"\nsearch = "full_stop"\n'
    assert read_keys(written(tmp_path, text + 'next_hit = "%"\n')) == {
        "next": "E",
        "step": "ctrl+g",
        "up": "ü,space",
        "down": "alt+n",
        "search": "full_stop",
        "next_hit": "percent_sign",
    }


def test_an_action_has_the_name_that_the_console_has_for_it_too(tmp_path: Path) -> None:
    text = 'reverse-next = "f9"\ngoto = "f8"\nbreak = "f7"\n"who wrote" = "f6"\nback = "f5"\n'
    names = {"reverse_next": "f9", "until": "f8", "breakpoint": "f7", "who_wrote": "f6", "back": "f5"}
    assert read_keys(written(tmp_path, text)) == names
    assert read_keys(written(tmp_path, '[job]\nnext-finding = "f9"\n'), JOB_ACTIONS, "job") == {"next_finding": "f9"}
    with pytest.raises(UsageError, match="goto is until, which is there, too"):
        read_keys(written(tmp_path, 'until = "f8"\ngoto = "f9"\n'))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("next = \n", "keys.toml"),
        ('jump = "x"\n', "unknown action 'jump'"),
        ("next = 3\n", "next takes a key"),
        ('next = "ctrl+q"\n', "next cannot have ctrl"),
        ('next = "ctrl+C"\n', "next cannot have ctrl"),
        ('next = "Escape"\n', "next cannot have escape"),
        ('next = "f77"\n', "unknown key 'f77'"),
        ('next = "control+g"\n', "unknown key 'control.g'"),
        ('next = "nn"\n', "unknown key 'nn'"),
        ('next = ["n", ""]\n', "next takes a key"),
        ('next = "c"\n', "c is both"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        read_keys(written(tmp_path, text))


def test_no_key_does_two_things_and_none_takes_the_toolkits() -> None:
    keys = [(action.pane, key) for action in ACTIONS for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))
    assert not {key for _, key in keys} & set(RESERVED)


def test_a_pane_has_keys_of_its_own(tmp_path: Path) -> None:
    assert read_keys(written(tmp_path, 'area_left = "h"\nearlier = "left"\n')) == {"area_left": "h", "earlier": "left"}
    with pytest.raises(UsageError, match="both area_left and area_right"):
        read_keys(written(tmp_path, 'area_left = "right"\n'))


def test_every_action_does_something() -> None:
    """Digits are tried in `test_panes.py`."""
    digits = {f"pane_{key_of(pane)}" for pane in NUMBERED}
    others = [action for action in ACTIONS if not action.verb and action.name not in digits]
    assert not [action.name for action in others if not hasattr(ActionHandlers, action.name)]
