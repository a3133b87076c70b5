"""Meshes and channels: ranks, coordinates, groups by axis, and what a bad one is told."""

from __future__ import annotations

import numpy as np
import pytest

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.channel import Across, Toward, parse
from prismdbg.simulate.graph.mesh import Mesh

MESH = Mesh.parse("pp=16,dp=64,tp=8", world=8192)


class TestRanks:
    def test_the_last_axis_has_adjacent_ranks(self) -> None:
        assert MESH.coordinates(617) == {"pp": 1, "dp": 13, "tp": 1}
        assert MESH.rank(pp=1, dp=13, tp=1) == 617
        assert MESH.say(617) == "rank 617 (pp=1 dp=13 tp=1)"

    def test_another_order_moves_ranks_not_positions(self) -> None:
        mesh = Mesh.parse("pp=2,dp=3,tp=4", order="tp,pp,dp")

        assert mesh.coordinates(1) == {"pp": 0, "dp": 1, "tp": 0}
        assert mesh.rank(tp=1) == 6
        assert mesh.ranks().shape == (2, 3, 4)
        assert int(mesh.ranks()[1, 2, 3]) == mesh.rank(pp=1, dp=2, tp=3) == 23

    @pytest.mark.parametrize("order", ["", "tp,dp,pp", "dp,pp,tp"])
    def test_both_ways_agree(self, order: str) -> None:
        mesh = Mesh.parse("pp=2,dp=3,tp=4", order=order)
        assert [mesh.rank(**mesh.coordinates(rank)) for rank in range(24)] == list(range(24))
        assert sorted(mesh.ranks().ravel().tolist()) == list(range(24))
        assert all(int(mesh.ranks()[tuple(mesh.coordinates(r).values())]) == r for r in range(24))


class TestBadMeshes:
    @pytest.mark.parametrize(
        ("text", "said", "hint"),
        [
            ("pp=16,dp=64,tp=4", "16 x 64 x 4 = 4,096 ranks, and the world has 8,192", "use tp=8"),
            ("pp=16,tp", "'tp' is not an axis", "axis=size"),
            ("pp=0", "'pp=0' is not an axis", "axis=size"),
            ("tp=8,tp=1024", "an axis twice", "a name of its own"),
            ("tp=99999999", "ranks", "at most"),
        ],
    )
    def test_what_is_said(self, text: str, said: str, hint: str) -> None:
        with pytest.raises(UsageError, match=said) as caught:
            Mesh.parse(text, world=8192)
        assert hint in caught.value.hint

    def test_an_unknown_axis_and_the_known_ones(self) -> None:
        with pytest.raises(UsageError, match="axis 'ep' is not in the mesh") as caught:
            MESH.size("ep")
        assert caught.value.hint == "give one of: pp, dp, tp"

    @pytest.mark.parametrize("rank", [-1, 8192])
    def test_a_rank_out_of_range(self, rank: int) -> None:
        with pytest.raises(UsageError, match=f"rank {rank} is not in the mesh") as caught:
            MESH.coordinates(rank)
        assert "0 to 8191" in caught.value.hint

    def test_a_coordinate_out_of_range(self) -> None:
        with pytest.raises(UsageError, match="tp=8 is outside"):
            MESH.rank(tp=8)

    def test_an_order_without_an_axis(self) -> None:
        with pytest.raises(UsageError, match="does not contain each axis"):
            MESH.reordered(["pp", "tp"])


class TestChannels:
    def test_what_means_the_same_is_equal(self) -> None:
        assert parse("tp,dp", MESH) == parse("dp,tp", MESH) == Across(axes=("dp", "tp"))
        assert parse("world", MESH) == parse("pp,dp,tp", MESH)
        assert parse("pp-1", MESH) == parse("pp+15", MESH) == Toward(axis="pp", offset=15)
        assert parse("tp[0,1,2,3,4,5,6,7]", MESH) == parse("tp", MESH)
        assert parse("dp#grads", MESH) != parse("dp", MESH)

    @pytest.mark.parametrize(
        "text", ["tp", "dp,tp", "pp[0,15]", "pp[1-15:2]", "pp[0-3,9]", "pp+1", "pp+1#act", "dp#grads"]
    )
    def test_as_text(self, text: str) -> None:
        assert str(parse(text, MESH)) == text

    def test_the_way_back(self) -> None:
        forward = parse("pp+1", MESH)
        assert isinstance(forward, Toward)
        assert forward.back(MESH) == parse("pp-1", MESH)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("ep", "axis 'ep' is not in the mesh"),
            ("pp+16", "the rank itself"),
            ("pp[0,16]", "pp has size 16"),
            ("pp[0-16]", "pp has size 16"),
            ("pp[3-]", "'3-' is not a coordinate"),
            ("dp,tp[0]", "coordinates of several axes"),
            ("tp,tp", "an axis twice"),
            ("4711?", "is not a set of ranks"),
        ],
    )
    def test_a_group_the_mesh_does_not_explain(self, text: str, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            parse(text, MESH)


def test_vectors_over_ranks_are_shaped_by_the_axes() -> None:
    assert np.array_equal(MESH.ranks().ravel(), np.arange(8192))
