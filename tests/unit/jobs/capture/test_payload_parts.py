"""Of a payload segment a capsule holds what collectives of its log received; nothing that lay there before or after."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import RankLog
from prismdbg.jobs.capture.payload_parts import add_payloads
from prismdbg.model.collective import Collective, PayloadRef
from tests.unit.logs import lone_collective


def received(record_id: int, segment: int, offset: int, size_bytes: int) -> Collective:
    return lone_collective(record_id=record_id, payload=PayloadRef(segment, offset, size_bytes))


def test_all_else_in_a_segment_is_zeros(tmp_path: Path) -> None:
    calls = [received(0, 2, 8, 4), received(1, 2, 20, 8), received(2, 3, 0, 4)]
    log = RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=calls)
    folder = tmp_path / "rank"
    folder.mkdir()
    for segment in (2, 3):
        (folder / fmt.payload_segment(segment)).write_bytes(
            b"older678" + b"kept" + b"between!" + b"received" + b"newer"
        )
    with CapsuleWriter(tmp_path / "capsule") as writer:
        assert add_payloads(writer, layout.LOG, folder, log, [2]) == {2: 33}
        parts = sorted((writer.folder / layout.LOG).iterdir())
        assert [path.name for path in parts] == [fmt.payload_segment(2)]
        assert parts[0].read_bytes() == bytes(8) + b"kept" + bytes(8) + b"received" + bytes(5)
