"""Times of collectives in CSV files: what a byte is, what a layout is, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.errors import CapsuleError, PrismError, UsageError
from prismdbg.predict.samples.collective_files import CollectiveTimes, read_collectives
from prismdbg.simulate.cluster.transfer import Geometry

HEADER = "shape,nodes,GPUsPerNode,dur(us)\n"


def write(folder: Path, name: str, *rows: str, header: str = HEADER) -> Path:
    path = folder / name
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return path


def found(times: CollectiveTimes) -> dict[tuple[str, int, int, int], tuple[int, ...]]:
    return {(s.op, s.where.nodes, s.where.local, s.size_bytes): s.times_ns for s in times.samples}


@pytest.mark.parametrize(
    ("name", "layout", "op", "size_bytes"),
    [
        ("allreduce_fp16_2_4.csv", "2.0,4.0", "all_reduce", 2_000),
        ("allreduce.csv", "2,4", "all_reduce", 2_000),
        ("all_reduce_fp32.csv", "2,4", "all_reduce", 4_000),
        ("allreduce_fp8.csv", "2,4", "all_reduce", 1_000),
        ("H100_allreduce_large_fp8_2_4.csv", "2,4", "all_reduce", 1_000),
        ("allgather_large_fp16.csv", "2,4", "all_gather", 16_000),
        ("NVIDIAA100-SXM4-80GB_allgather_bf16_1_4.csv", "1,4", "all_gather", 8_000),
        ("reducescatter_large_fp16.csv", "2,4", "reduce_scatter", 2_000),
        ("p2p_fp16_2_1.csv", "2,1", "send", 2_000),
    ],
)
def test_bytes_are_those_of_a_simulation(tmp_path: Path, name: str, layout: str, op: str, size_bytes: int) -> None:
    """Of an all-gather `shape` is one rank's part, of a reduce-scatter those of all ranks."""
    times = read_collectives([write(tmp_path, name, f"1000.0,{layout},12.5")])
    nodes, local = (int(float(part)) for part in layout.split(","))
    assert found(times) == {(op, nodes, local, size_bytes): (12_500,)}
    across = int(nodes > 1)
    assert times.samples[0].where == Geometry(
        members=nodes * local, tier=across, nodes=nodes, local=local, sharing=across
    )


def test_a_folder_is_read_with_what_it_has_twice_counted_once(tmp_path: Path) -> None:
    write(tmp_path, "allreduce_fp16.csv", "8,1,2,5", "", "8,2,2,9", "16,1,2,7")
    write(tmp_path, "allreduce_large_fp16_1_2.csv", "8,1,2,5", "8,1,2,6")
    write(tmp_path, "linear1.csv", "1,2", header="dim,forward_us\n")
    times = read_collectives([tmp_path])
    assert found(times) == {
        ("all_reduce", 1, 2, 16): (5_000, 6_000),
        ("all_reduce", 2, 2, 16): (9_000,),
        ("all_reduce", 1, 2, 32): (7_000,),
    }
    assert times.left_out == ("linear1.csv",) and times.gpu == ""


@pytest.mark.parametrize(
    ("odd", "header"),
    [
        ("all_gather_copy_in.csv", "items,width,tensors,whole_us\n"),
        ("alltoall_fp16.csv", HEADER),
        ("broadcast_fp16.csv", HEADER),
    ],
)
def test_a_file_of_a_folder_that_has_no_times_of_a_known_collective_is_left_out(
    tmp_path: Path, odd: str, header: str
) -> None:
    write(tmp_path, "allreduce_fp16.csv", "8,1,2,5")
    write(tmp_path, odd, "8,1,2,5", header=header)
    times = read_collectives([tmp_path])
    assert list(found(times)) == [("all_reduce", 1, 2, 16)] and times.left_out == (odd,)
    with pytest.raises(CapsuleError, match=odd):
        read_collectives([tmp_path / odd])


def test_the_gpu_is_that_of_the_name_or_of_the_column(tmp_path: Path) -> None:
    named = write(tmp_path, "H100_allreduce_fp16.csv", "8,1,2,5")
    assert read_collectives([named, write(tmp_path, "p2p.csv", "8,1,2,5")]).gpu == "H100"
    column = write(tmp_path, "allgather.csv", "A100,8,1,2,5", header="GPU," + HEADER)
    assert read_collectives([column]).gpu == "A100"


@pytest.mark.parametrize(
    ("name", "header", "rows", "said"),
    [
        ("allreduce.csv", "shape,nodes,GPUsPerNode,dur(us),color\n", ["1,1,2,3,4"], "line 1: unknown column: color"),
        ("allreduce.csv", "shape,nodes,dur(us)\n", ["1,1,2"], "line 1: column GPUsPerNode is missing"),
        ("allreduce.csv", "shape,nodes,GPUsPerNode\n", ["1,1,2"], "line 1: no column of times"),
        ("allreduce.csv", "shape,shape,nodes,GPUsPerNode,dur(us)\n", ["1,1,1,2,3"], "line 1: a column occurs twice"),
        ("allreduce.csv", HEADER, [], "contains no times"),
        ("allreduce.csv", HEADER, ["1,1,2,5", "", "1,1,2,-3"], r"line 4: dur\(us\) is '-3', not a number above zero"),
        ("allreduce.csv", HEADER, ["1,1,2"], "line 2: 3 values for 4 columns"),
        ("allreduce.csv", HEADER, ["1,1,2,nan"], "line 2: .*'nan'"),
        ("allreduce.csv", HEADER, ["1,1.5,2,3"], r"line 2: nodes is 1\.5, not a whole number"),
        ("allreduce.csv", HEADER, ["1,1,1,3"], "line 2: 1 x 1 is a single rank"),
        ("allreduce.csv", HEADER, ["1,1,99999999999,3"], "line 2: .* more ranks than"),
        ("allreduce.csv", HEADER, ["1,1,2,1e16"], "line 2: .* longer than a month"),
        ("allreduce.csv", HEADER, ["9e17,8,8,1"], None),
        ("allgather.csv", HEADER, ["9e17,8,8,1"], "line 2: .* beyond 64 bits"),
        ("p2p.csv", HEADER, ["1,2,4,3"], "line 2: p2p is between two ranks, not 8"),
        ("allreduce.csv", "GPU," + HEADER, ["A,1,1,2,3", "B,1,1,2,3"], "line 3: times of B, but .* has times of A"),
        ("allreduce.csv", "GPU," + HEADER, ["1,1,2,3"], "line 2: 3 values for 4 columns"),
        ("allreduce.csv", HEADER, ["1,1,2,3,4"], "line 2: 5 values for 4 columns"),
        ("broadcast.csv", HEADER, ["1,1,2,3"], "line 1: its name is that of no known collective"),
        ("linear1.csv", "dim,forward_us\n", ["1,2"], "line 1: its name is that of no known collective"),
        *((f"allreduce_{odd}.csv", HEADER, ["1,1,2,3"], f"line 1: '{odd}' in the file's name cannot be the type here")
          for odd in ("float32", "fp64", "int8", "FP32", "half", "fp8e4m3")),
        ("fp32_allreduce.csv", HEADER, ["1,1,2,3"], "line 1: 'fp32' in the file's name cannot be the type here"),
        ("allreduce_fp16_fp32.csv", HEADER, ["1,1,2,3"], "line 1: 'fp32' in the file's name cannot be the type here"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_error(
    tmp_path: Path, name: str, header: str, rows: list[str], said: str | None
) -> None:
    path = write(tmp_path, name, *rows, header=header)
    if said is None:
        read_collectives([path])
        return
    with pytest.raises(CapsuleError, match=said) as raised:
        read_collectives([path])
    assert str(path) in str(raised.value) and raised.value.hint


def test_two_gpus_in_names_of_files_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "A100_allreduce.csv", "1,1,2,3")
    write(tmp_path, "H100_allreduce.csv", "1,1,2,3")
    with pytest.raises(
        CapsuleError, match=r"H100_allreduce.csv, line 2: times of H100, but .*A100_all.* has times of A100"
    ):
        read_collectives([tmp_path])


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", tmp_path / "absent.csv"):
        with pytest.raises(PrismError, match=str(path)):
            read_collectives([path])
    with pytest.raises(UsageError, match="no times of collectives"):
        read_collectives([tmp_path])
