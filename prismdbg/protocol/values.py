"""Values of the model as plain JSON objects and back, for the wire and for `--json`."""

from __future__ import annotations

from typing import Any

from prismdbg.model.collective import Collective, Frame, Group

MAIN_THREAD = "MainThread"  # as Python names it
MAX_THREADS = 256  # that an agent lists beside the one that is stopped


def frame_to_json(frame: Frame) -> dict[str, Any]:
    return {"filename": frame.filename, "line": frame.line, "name": frame.name}


def frame_from_json(data: dict[str, Any]) -> Frame:
    """Python itself knows no line of some frames."""
    return Frame(str(data["filename"]), int(data["line"] or 0), str(data["name"]))


def group_to_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "title": group.title,
        "ranks": list(group.ranks),
        "desc": group.desc,
        "backend": group.backend,
    }


def collective_to_json(record: Collective) -> dict[str, Any]:
    """Flight Recorder's field names where it has them."""
    return {
        "record_id": record.record_id,
        "moment": str(record.moment),
        "profiling_name": record.name,
        "op": record.op,
        "process_group": record.group,
        "collective_seq_id": record.identity.seq if not record.is_p2p else None,
        "p2p_seq_id": record.identity.seq if record.is_p2p else None,
        "is_p2p": record.is_p2p,
        "is_async": record.is_async,
        "root": record.root if record.root >= 0 else None,
        "tag": record.tag if record.is_p2p else None,
        "reduce_op": record.reduce_op or None,
        "timeout_ms": record.timeout_ms if record.timeout_ms >= 0 else None,
        "input_sizes": [list(t.shape) for t in record.inputs],
        "input_dtypes": [t.dtype for t in record.inputs],
        "output_sizes": [list(t.shape) for t in record.outputs],
        "output_dtypes": [t.dtype for t in record.outputs],
        "device": (record.outputs or record.inputs)[0].device if record.outputs or record.inputs else None,
        "stream": record.stream,
        "failure": f"{record.failure.type}: {record.failure.text}" if record.failure is not None else None,
        "fingerprint": f"{record.fingerprint:016x}" if record.fingerprint is not None else None,
        "sent_nonfinite": record.sent_nonfinite,
        "received_nonfinite": record.received_nonfinite,
        "synthesized": record.synthesized,
        "state": str(record.state),
        "time_created_ns": record.time_created_ns,
        "time_discovered_completed_ns": record.time_completed_ns,
        "source_rank": record.source_rank if record.source_rank >= 0 else None,
        "thread_id": record.thread_id,
        "frames": [frame_to_json(f) for f in record.frames],
    }
