"""Mesh names against the groups that the program made."""

from __future__ import annotations

from itertools import product

import pytest

from prismdbg.emulate.mesh_check import axis_of, check_mesh, say_without_axis
from prismdbg.errors import UsageError
from prismdbg.model.collective import Group
from prismdbg.settings.mesh_axes import Axes
from prismdbg.simulate.graph.mesh import Mesh

WORLD = Group(name="0", ranks=tuple(range(8)), desc="default_pg")


def groups(mesh: str, rank: int = 0, *, named: bool = True, axes: tuple[str, ...] = ()) -> list[Group]:
    """As a program makes them that has this mesh, seen by one rank."""
    own = Mesh.parse(mesh)
    found = Axes([(name, own.size(name)) for name in own.order])
    return [WORLD] + [
        Group(
            name=str(number),
            ranks=tuple(found.members(rank, axis)),
            desc=f"mesh_{axis}" if named else "undefined",
        )
        for number, axis in enumerate(axes or own.names, 1)
    ]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("mesh", ["dp=4,tp=2", "pp=2,dp=2,tp=2", "dp=8"])
def test_the_programs_own_mesh_passes(mesh: str, named: bool) -> None:
    for rank in range(8):
        check_mesh(Mesh.parse(mesh), groups(mesh, rank, named=named))


@pytest.mark.parametrize(("given", "rank"), list(product(["tp=2,dp=4", "dp=2,tp=4", "tp=4,dp=2"], [0, 5])))
def test_axes_that_the_program_gave_other_ranks_are_refused_with_those_that_fit(given: str, rank: int) -> None:
    with pytest.raises(UsageError) as caught:
        check_mesh(Mesh.parse(given), groups("dp=4,tp=2", rank))
    assert str(caught.value).startswith("the program's group ")
    assert caught.value.hint == "give --mesh dp=4,tp=2"


def test_what_it_says() -> None:
    with pytest.raises(UsageError) as caught:
        check_mesh(Mesh.parse("tp=2,dp=4"), groups("dp=4,tp=2", axes=("tp",)))
    assert str(caught.value) == (
        "the program's group tp is ranks 0, 1, but along tp of the mesh tp=2,dp=4 it would be ranks 0, 4"
    )


def test_groups_without_names_tell_by_their_sizes() -> None:
    with pytest.raises(UsageError) as caught:
        check_mesh(Mesh.parse("tp=2,dp=4"), groups("dp=4,tp=2", named=False))
    assert (
        str(caught.value)
        == "a group of the program is ranks 0, 2, 4, 6, which lies along no axis of the mesh tp=2,dp=4"
    )
    assert caught.value.hint == "give --mesh dp=4,tp=2"


def test_a_name_for_the_whole_world() -> None:
    with pytest.raises(
        UsageError, match=r"group dp is ranks 0, 1, 2, 3, 4, 5, \.\.\., but along dp .* ranks 0, 2, 4, 6"
    ):
        check_mesh(Mesh.parse("dp=4,tp=2"), [WORLD, Group(name="9", ranks=WORLD.ranks, desc="mesh_dp")])


def test_a_world_of_one_rank() -> None:
    check_mesh(Mesh.parse("tp=1"), [Group(name="0", ranks=(0,), desc="default_pg")])


def test_one_of_several_meshes_is_enough() -> None:
    check_mesh(
        Mesh.parse("dp=8"), [*groups("dp=4,tp=2", axes=("dp",)), Group(name="9", ranks=WORLD.ranks, desc="mesh_dp")]
    )
    both = [*groups("dp=4,tp=2", axes=("dp",)), *groups("pp=2,dp=4", axes=("dp",))]
    check_mesh(Mesh.parse("pp=2,dp=4"), both)


def test_groups_inside_an_axis_are_no_other_mesh() -> None:
    check_mesh(Mesh.parse("dp=8"), groups("node=4,gpu=2", named=False))
    ends = Group(name="9", ranks=(0, 6), desc="undefined")  # the first and the last stage
    check_mesh(Mesh.parse("pp=4,dp=2"), [*groups("pp=4,dp=2", named=False), ends])


def test_groups_of_no_mesh_are_no_other_mesh_and_are_named() -> None:
    odd = [Group(name="1", ranks=(0, 1, 3), desc="undefined"), Group(name="2", ranks=(3, 0), desc="undefined")]
    mesh, all_groups = Mesh.parse("dp=4,tp=2"), [WORLD, *groups("dp=4,tp=2"), *odd, odd[1]]
    check_mesh(mesh, [WORLD, *odd])
    assert say_without_axis(mesh, all_groups) == (
        "2 groups of the program lie along no axis of the mesh dp=4,tp=2: ranks 0, 1, 3; ranks 0, 3"
    )


def test_of_many_groups_of_no_mesh_a_few_are_named() -> None:
    odd = [Group(name=str(n), ranks=(0, 3 + 2 * n), desc="undefined") for n in range(5)]
    said = say_without_axis(Mesh.parse("dp=8,tp=2"), odd)
    assert said.startswith("5 groups of the program lie") and said.endswith("; and 2 more groups")


def test_groups_along_axes_and_inside_them_are_not_named() -> None:
    for mesh, of in (("dp=4,tp=2", "dp=4,tp=2"), ("pp=2,dp=2,tp=2", "pp=2,dp=2,tp=2"), ("dp=8", "node=4,gpu=2")):
        assert not say_without_axis(Mesh.parse(mesh), groups(of, named=False))


def test_names_of_megatron() -> None:
    named = {
        "TENSOR_MODEL_PARALLEL_GROUP": "tp",
        "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
        "DATA_PARALLEL_GROUP": "dp",
        "DATA_PARALLEL_GROUP_WITH_CP": "",
        "TENSOR_AND_DATA_PARALLEL_GROUP": "",
        "mesh_dp_shard": "dp_shard",
        "undefined": "",
    }
    assert {desc: axis_of(Group(name="1", ranks=(), desc=desc)) for desc in named} == named
