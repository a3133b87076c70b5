"""What is said of every operator elsewhere is said of every one."""

from __future__ import annotations

import pytest
import torch

from prismdbg.model.collective import Group
from prismdbg.model.ops import OPS, Form, Movement, check_complete, ops_of
from prismdbg.rank.c10d import schemas
from prismdbg.rank_graph.slice import gives, takes


def test_an_operator_that_a_table_lacks_is_an_error_at_its_import() -> None:
    with pytest.raises(LookupError, match=r"colours lacks barrier, which model/ops\.py has"):
        check_complete(set(OPS) - {"barrier"}, "colours")
    check_complete(OPS, "colours")


def test_operators_by_what_they_do() -> None:
    assert ops_of(Movement.BROADCAST, Movement.SCATTER) == {"broadcast_", "scatter_"}
    assert ops_of(Movement.ALL_TO_ALL, form=Form.FLAT) == {"alltoall_base_"}
    assert frozenset.union(*(ops_of(movement) for movement in Movement)) == set(OPS)
    assert [name for name, spec in OPS.items() if spec.is_from_any] == ["recv_any_source_"]


@pytest.mark.parametrize("name", schemas.read().known)  # of this torch; a newer one has more
def test_a_list_of_tensors_for_each_member_is_one_in_torchs_schema(name: str) -> None:
    """Where one side of a call is LISTED, its schema has a list of lists there, or takes the lists apart itself."""
    schema = str(getattr(torch.ops.c10d, name).default._schema)
    nested = "Tensor[][]" in schema
    assert nested <= (OPS[name].form is Form.LISTED)


@pytest.mark.parametrize("op", OPS)
def test_of_a_collective_with_a_root_the_table_says_who_gives_and_who_takes(op: str) -> None:
    group = Group(name="0", ranks=(5, 6))
    from_root, to_root = op in ("broadcast_", "scatter_"), op in ("reduce_", "gather_", "gather_into_tensor_")
    assert gives(op, 0, group, 5) and gives(op, 0, group, 6) is not from_root
    assert takes(op, 0, group, 5) is not from_root and takes(op, 0, group, 6) is not to_root
