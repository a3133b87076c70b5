"""Calls that a program made, as sizes, and the same calls on other sizes."""

from __future__ import annotations

from pathlib import Path

from prismdbg.emulate.sample import write
from prismdbg.predict.samples.operator_call import OperatorCall, grid
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.predict.samples.samples import Phase


def tensor(*sizes: int, **more: int) -> dict[str, object]:
    return {"tensor": list(sizes), "dtype": "torch.float32", "order": list(range(len(sizes))), **more}


def call(op: str, *args: object, count: int = 1) -> OperatorCall:
    return OperatorCall(described={"op": op, "args": list(args), "kwargs": {}}, count=count)


ADDMM = call("aten.addmm.default", tensor(512), tensor(32, 128), tensor(128, 512))
NORM = call("aten.native_layer_norm.default", tensor(32, 512), [512], tensor(512), tensor(512), 1e-5)


def test_products_have_their_sizes_and_others_their_elements() -> None:
    assert ADDMM.operator == "addmm"
    assert ADDMM.columns == {"m": 32, "n": 512, "k": 128, "batch": 1}
    assert NORM.columns == {"items": 32 * 512 + 2 * 512, "width": 512, "tensors": 3}
    assert call("aten._foreach_add_.Scalar", [tensor(4), tensor(8)], 1).operator == "_foreach_add_.Scalar"


def test_a_size_is_changed_everywhere_in_a_call() -> None:
    wider = NORM.scaled(512, 2)
    assert wider is not None and wider.tensors == [[32, 1024], [1024], [1024]]
    assert wider.described["args"][1] == [1024]
    assert NORM.described["args"][1] == [512]
    assert NORM.scaled(512, 1 / 3) is None


def test_an_index_stays_within_a_table_that_became_smaller() -> None:
    looked_up = call("aten.embedding.default", tensor(100, 16), tensor(8, high=90))
    smaller = looked_up.scaled(100, 0.5)
    assert smaller is not None and smaller.described["args"][1]["high"] == 50


def test_the_grid_has_every_size_by_the_first_factor_before_any_by_the_second() -> None:
    found = [other.columns for other in grid([ADDMM], (2, 4))]
    assert found == [
        {"m": 32, "n": 1024, "k": 128, "batch": 1},
        {"m": 32, "n": 512, "k": 256, "batch": 1},
        {"m": 64, "n": 512, "k": 128, "batch": 1},
        {"m": 32, "n": 2048, "k": 128, "batch": 1},
        {"m": 32, "n": 512, "k": 512, "batch": 1},
        {"m": 128, "n": 512, "k": 128, "batch": 1},
    ]


def test_times_are_written_as_samples(tmp_path: Path) -> None:
    wider = ADDMM.scaled(512, 2)
    assert wider is not None
    assert write([(ADDMM, 1000.0), (ADDMM, 3000.0), (wider, 5000.0), (NORM, 7000.0)], tmp_path) == 2
    found = read_folder(tmp_path)
    assert found["addmm"].times_ns[Phase.WHOLE].tolist() == [2000.0, 5000.0]
    assert found["addmm"].work.shape(1) == "addmm batch=1 k=128 m=32 n=1024"
    assert found["native_layer_norm"].work.family == "native_layer_norm"


def test_an_attention_has_its_length_and_a_name_of_the_table_may_be_a_programs(tmp_path: Path) -> None:
    q = tensor(2, 8, 64, 32)
    attention = call("aten._scaled_dot_product_flash_attention_for_cpu.default", q, q, q)
    assert attention.columns == {"l": 64, "width": 32, "heads": 16}
    write([(attention, 1000.0), (call("aten.gelu.default", tensor(4, 8)), 10.0)], tmp_path)
    found = read_folder(tmp_path)
    assert found["_scaled_dot_product_flash_attention_for_cpu"].work.flops[0] == 2 * 16 * 64**2 * 32
    assert found["gelu"].work.sizes["items"][0] == 32
