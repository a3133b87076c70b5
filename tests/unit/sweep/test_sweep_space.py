"""Which configurations a sweep has, and how a command is written for one."""

from __future__ import annotations

import pytest

from prismdbg.errors import UsageError
from prismdbg.sweep.space import Space

COMMAND = ("python", "train.py", "--pp", "{pp}", "--mbs={mbs}", "--out", "{folder}")


def space(world: int = 8, mesh: str = "pp,dp,tp=2", tried: tuple[str, ...] = ("pp=1,2,3", "mbs=1,4")) -> Space:
    return Space.parse(world, mesh, tried)


def test_every_combination_is_one_and_the_rest_of_the_world_is_an_axis() -> None:
    found = list(space().configurations())
    assert [each.name for each in found] == [f"pp={pp},mbs={mbs}" for pp in (1, 2, 3) for mbs in (1, 4)]
    assert [str(each.mesh) for each in found[:4]] == ["pp=1,dp=4,tp=2"] * 2 + ["pp=2,dp=2,tp=2"] * 2


def test_what_no_mesh_fits_is_told_by_its_numbers() -> None:
    *_, impossible = space().configurations()
    assert impossible.mesh is None
    assert impossible.impossible == "8 ranks are not divisible by pp=3 x tp=2"


def test_sizes_that_are_all_given_must_make_the_world() -> None:
    one, other = Space.parse(8, "dp=4,tp", ["tp=1,2"]).configurations()
    assert one.mesh is None and "has 4 x 1 = 4 ranks, and the world has 8 ranks" in one.impossible
    assert other.mesh is not None


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "two"])
def test_what_is_no_size_of_an_axis_is_impossible(size: str) -> None:
    (only,) = Space.parse(8, "pp,dp", [f"pp={size}"]).configurations()
    assert only.mesh is None and f"pp={size} is not a size of a mesh axis" in only.impossible


def test_a_command_gets_values_sizes_and_folders() -> None:
    chosen = list(space().configurations())[3]
    assert chosen.words(COMMAND, folder="/s/x") == (
        "python", "train.py", "--pp", "2", "--mbs=4", "--out", "/s/x",
    )  # fmt: skip
    assert chosen.words(("{world}x{dp}x{tp}", '{"json": 1}')) == ("8x2x2", '{"json": 1}')


@pytest.mark.parametrize(
    ("mesh", "tried", "named"),
    [
        ("pp,dp", ("pp",), "not a name with values"),
        ("pp,dp", ("pp=1,,2",), "not a name with values"),
        ("pp,dp", ("pp=1;rm",), "not a name with values"),
        ("pp,dp", ("pp=../..",), "not a name with values"),
        ("pp,dp", ("pp=1,1",), "a value twice"),
        ("pp,dp", ("pp=1", "pp=2"), "given twice"),
        ("pp=2,dp", ("pp=1",), "and --try pp too"),
        ("pp,dp,tp", ("pp=1",), "leaves the sizes of dp and tp open"),
        ("pp,pp", ("pp=1",), "is not an axis"),
        ("pp,dp=x", ("pp=1",), "is not an axis"),
        ("dp", tuple(f"a{n}=1,2,3,4,5,6,7,8" for n in range(5)), "32,768 configurations"),
    ],
)
def test_what_is_not_understood_is_an_error(mesh: str, tried: tuple[str, ...], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        Space.parse(8, mesh, tried)
    assert raised.value.hint or "configurations" in named


def test_a_name_that_the_command_lacks_changes_nothing_and_an_unknown_one_is_named() -> None:
    space().check(COMMAND, "folder")
    with pytest.raises(UsageError, match=r"--try mbs does not reach the program: the command has no \{mbs\}"):
        space().check(COMMAND[:4], "folder")
    with pytest.raises(UsageError, match=r"the command contains \{folder\}, but --try has no values"):
        space().check(COMMAND)


@pytest.mark.parametrize("text", ["1024", "1024*{mbs}*{dp}", "{world} * 2"])
def test_a_product_of_numbers(text: str) -> None:
    space().check_product(text)


@pytest.mark.parametrize("text", ["", "1024**2", "{lr}", "x", "1024+1", "{mode}"])
def test_what_is_no_product(text: str) -> None:
    with pytest.raises(UsageError, match="is not a number"):
        space(tried=("pp=1", "mbs=1", "mode=a,b")).check_product(text)
