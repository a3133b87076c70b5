"""Traces of prismdbg in Chakra's own tools, and traces of these tools in prismdbg's commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf.json_format import MessageToDict
from test_chakra_export import job
from test_chakra_graph import job as graph_job

from prismdbg.cli.main import cli
from prismdbg.diagnosis.why import diagnose
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.exporters.chakra import write_traces
from prismdbg.exporters.chakra_graph import write_graph
from prismdbg.importers import chakra, chakra_schema
from prismdbg.importers.formats import read_job
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.jobs.evidence import gather
from prismdbg.model.collective import TensorMeta

published = pytest.importorskip(
    "chakra.schema.protobuf.et_def_pb2", reason="Chakra's tools are not installed (pip install --no-deps mlc-chakra)"
)
networkx = pytest.importorskip("networkx", reason="networkx is not installed")
pytest.importorskip("graphviz", reason="graphviz is not installed")

from chakra.src.converter.pytorch_converter import PyTorchConverter  # noqa: E402
from chakra.src.converter.text_converter import TextConverter  # noqa: E402
from chakra.src.generator import generator  # noqa: E402
from chakra.src.jsonizer import jsonizer  # noqa: E402
from chakra.src.visualizer import visualizer  # noqa: E402

NO_GROUPS = "the traces name no groups: each call is taken for one of all ranks that have a trace here"
NO_CALLS = "the traces contain no collective or message: there is nothing to compare"


@pytest.fixture(scope="module", params=["logs", "graph"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of one rank: of a job's logs, or of a job graph."""
    folder = tmp_path_factory.mktemp("traces")
    if request.param == "graph":
        write_graph(graph_job(), folder, [3])
        return folder / "chakra.3.et"
    write_traces(job(tmp_path_factory.mktemp("logs")), folder, last=100)
    return folder / "chakra.0.et"


def call(main: Any, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr("sys.argv", ["chakra", *words])
    main()


def values(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value


def read(folder: Path) -> ImportedJob:
    found = read_job(folder)
    assert found is not None
    return found


def test_fields_and_enumerations_are_those_of_the_published_schema() -> None:
    assert published.DESCRIPTOR.package == chakra_schema._PACKAGE
    for message, fields in chakra_schema._FIELDS.items():
        theirs = published.DESCRIPTOR.message_types_by_name[message]
        for name, number, kind, is_repeated in fields:
            field = theirs.fields_by_name[name]
            said = field.message_type.name if field.message_type else field.type
            assert (field.number, said if field.enum_type is None else field.TYPE_INT32) == (number, kind), name
            assert field.is_repeated == is_repeated
            is_value = message == "AttributeProto" and name != "name"
            assert (field.containing_oneof is not None) == is_value
    names = ("METADATA_NODE", "COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE")
    ours = (chakra_schema.METADATA, chakra_schema.COMP, chakra_schema.SEND, chakra_schema.RECV)
    assert tuple(map(published.NodeType.Value, names)) == (*ours, chakra_schema.COLLECTIVE)
    assert list(enumerate(chakra_schema.COLLECTIVES)) == [
        (number, name) for name, number in published.CollectiveCommType.items()
    ]


def test_the_jsonizer_shows_each_node_with_all_that_was_written(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(jsonizer.main, monkeypatch, input_filename=exported, output_filename=tmp_path / "trace.json")
    metadata, *nodes = values((tmp_path / "trace.json").read_text())
    assert metadata["version"] == chakra_schema.VERSION
    written = [MessageToDict(node) for node in chakra._nodes(exported)]
    for node in written:
        node["type"] = published.NodeType.Name(node["type"])
    assert nodes == written
    assert len(nodes) > 5


def test_the_visualizer_draws_each_node_and_dependency(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(visualizer.main, monkeypatch, input_filename=exported, output_filename=tmp_path / "trace.graphml")
    drawn = networkx.read_graphml(tmp_path / "trace.graphml", node_type=int)
    nodes = list(chakra._nodes(exported))
    assert dict(drawn.nodes(data="label")) == {node.id: node.name for node in nodes}
    assert set(drawn.edges) == {(need, node.id) for node in nodes for need in node.data_deps}
    assert networkx.is_directed_acyclic_graph(drawn)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `chakra_generator` writes for two ranks."""
    folder = tmp_path_factory.mktemp("generated")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call(generator.main, patch, num_npus=2)
    return folder


def only(generated: Path, name: str, folder: Path) -> Path:
    """A folder with the traces of one workload, of the many that lie in one folder."""
    for file in generated.glob(f"{name}.*.et"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("name", "op", "size"),
    [
        ("ALL_REDUCE", "allreduce_", 65536),
        ("ALL_TO_ALL", "alltoall_base_", 65536),
        ("ALL_GATHER", "_allgather_base_", 65536),
        ("REDUCE_SCATTER", "_reduce_scatter_base_", 65536),
        ("BROADCAST", "broadcast_", 65536),
        ("BARRIER", "barrier", 0),
    ],
)
def test_a_generated_collective_is_one_of_all_ranks(
    generated: Path, tmp_path: Path, name: str, op: str, size: int
) -> None:
    found = read(only(generated, name, tmp_path))
    for log in found.logs.values():
        (collective,) = log.collectives
        assert (collective.op, collective.inputs) == (op, (TensorMeta((size,), "uint8"),))
        assert log.groups[collective.group].ranks == (0, 1)
    assert NO_GROUPS in found.gaps


def test_generated_traces_have_the_version_that_is_written(generated: Path) -> None:
    with (generated / "ALL_REDUCE.0.et").open("rb") as file:
        metadata = next(chakra_schema.bodies(file, 1 << 20))
    assert published.GlobalMetadata.FromString(metadata).version == chakra_schema.VERSION


@pytest.mark.parametrize(
    "name", ["one_comp_node", "two_comp_nodes_dependent", "one_metadata_node_all_types", "one_remote_mem_load_node"]
)
def test_traces_without_communication_say_that_there_is_nothing_to_compare(
    generated: Path, tmp_path: Path, name: str
) -> None:
    assert NO_CALLS in read(only(generated, name, tmp_path)).gaps


def test_messages_without_a_peer_are_left_out_of_an_export(generated: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    folder = only(generated, "one_comm_send_node", tmp_path / "traces")
    said = CliRunner().invoke(cli, ["export", str(folder), "--format", "chakra", "-o", str(tmp_path / "o")])
    assert "left out: 2 calls: a message to or from an unknown rank" in said.output


def test_several_workloads_in_a_folder_are_refused(generated: Path) -> None:
    with pytest.raises(UsageError, match=r"rank 0 has several traces: ALL_GATHER\.0\.et") as refused:
        read_job(generated)
    assert "a folder of its own" in refused.value.hint


LAYERS = "HYBRID_DATA_MODEL\n2\nl0 -1 10 ALLGATHER 1024 20 ALLREDUCE 2048 30 REDUCESCATTER {} 5\n" + (
    "l1 -1 10 ALLGATHER 1024 20 ALLTOALL 2048 30 NONE 0 5\n"
)


def converted(folder: Path, size: int = 4096) -> Path:
    """What `chakra_converter Text` writes for two ranks."""
    folder.mkdir()
    (folder / "layers.txt").write_text(LAYERS.format(size))
    TextConverter(str(folder / "layers.txt"), str(folder / "layers"), num_npus=2, num_passes=2).convert()
    return folder


def test_calls_of_converted_layers_are_compared(tmp_path: Path) -> None:
    same, other = converted(tmp_path / "same"), converted(tmp_path / "other", size=8192)
    assert len(read(same).logs[1].collectives) == 10
    assert diagnose(gather(same)).verdicts == ()
    (other / "layers.1.et").replace(same / "layers.1.et")
    assert [verdict.kind for verdict in diagnose(gather(same)).verdicts] == ["mismatch"]


def test_a_graph_is_built_and_exported_of_converted_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that do the same are one class only where they wait for each other."""
    folder, graph = converted(tmp_path / "t"), tmp_path / "g.npz"
    built = CliRunner().invoke(cli, ["graph", "build", str(folder), "--mesh", "dp=2", "-o", str(graph)])
    assert "2 ranks in 1 class, 20 events" in built.output
    for line in (["graph", "export", str(graph)], ["export", str(folder)]):
        out = tmp_path / line[0]
        said = CliRunner().invoke(cli, [*line, "--format", "chakra", "-o", str(out)])
        assert said.exit_code == 0, said.output
        assert json.loads((out / "comm_groups.json").read_text()) == {"1": [0, 1]}
        call(jsonizer.main, monkeypatch, input_filename=out / "chakra.0.et", output_filename=tmp_path / "j.json")
        kinds = [each.get("type") for each in values((tmp_path / "j.json").read_text())]
        assert kinds.count("COMM_COLL_NODE") == 10


GROUPS = [{"pg_name": "7", "pg_desc": "dp", "backend_config": "cuda:nccl", "ranks": [1, 0], "group_size": 2}]


def linked(groups: str) -> dict[str, Any]:
    """What `chakra_trace_link` writes of an all_reduce of a GPU: PyTorch's nodes, and the kernel with the arguments of
    the node that issued it."""
    nothing: dict[str, Any] = {"values": [], "shapes": [], "types": []}
    arguments = {
        "values": [[[7, 8, 0, 6, 2, "cuda:0"]], [3, False], ["7", "dp"], 0, "allreduce"],
        "shapes": [[[2, 3]], [[], []], [[], []], [], []],
        "types": ["GenericList[Tensor(c10::BFloat16)]", "Tuple[Int,Bool]", "Tuple[String,String]", "Int", "String"],
    }
    listed = {"values": [groups], "shapes": [[]], "types": ["String"]}
    kernel = {"cat": "kernel", "stream": 7, "pg_name": "7", "exclusive_dur": 20}
    names = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
    attributes = [{"name": name, "value": 1} for name in names] + [{"name": "op_schema", "value": ""}]
    nodes = [
        {"id": 2, "ctrl_deps": 1, "name": "[pytorch|profiler|execution_trace|thread]", "inputs": nothing},
        {"id": 3, "ctrl_deps": 2, "name": "## process_group:init ##", "inputs": listed},
        {"id": 4, "ctrl_deps": 2, "name": "record_param_comms", "inputs": arguments},
        {"id": 5, "ctrl_deps": 4, "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "inputs": arguments, **kernel},
    ]
    return {
        "schema": "1.1.1-chakra.0.0.4", "pid": 7, "time": "2026-01-01", "start_ts": 1, "finish_ts": 2,
        "nodes": [node | {"outputs": nothing, "attrs": attributes} for node in nodes],
    }  # fmt: skip


def of_pytorch(folder: Path, groups: str) -> Path:
    """What `chakra_converter PyTorch` makes of them, for two ranks."""
    for rank in (0, 1):
        (folder / "linked.json").write_text(json.dumps(linked(groups)))
        PyTorchConverter().convert(str(folder / "linked.json"), str(folder / f"gpu.{rank}.et"), simulate=False)
    (folder / "linked.json").unlink()
    return folder


def test_a_converted_kernel_of_nccl_has_its_group_and_only_its_tensors(tmp_path: Path) -> None:
    found = read(of_pytorch(tmp_path, json.dumps(GROUPS)))
    for log in found.logs.values():
        (collective,) = log.collectives
        assert (collective.op, collective.inputs) == ("allreduce_", (TensorMeta((2, 3), "bfloat16"),))
        assert (log.groups[collective.group].ranks, log.groups[collective.group].desc) == ((1, 0), "dp")
        assert collective.duration_ns == 20_000
    assert NO_GROUPS not in found.gaps


@pytest.mark.parametrize("groups", ["[", "{}", '[{"pg_name": 5}]'])
def test_converted_groups_that_are_damaged_are_one_error(tmp_path: Path, groups: str) -> None:
    with pytest.raises(CapsuleError, match="the groups"):
        read_job(of_pytorch(tmp_path, groups))
