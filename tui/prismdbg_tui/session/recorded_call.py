"""What a capsule itself says of one collective, without running anything: source lines, and what the rank received."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.exact_file import open_real
from prismdbg.capsule.files import Place, content_path, read_files
from prismdbg.capsule.log.format import payload_segment
from prismdbg.capsule.log.reader import read_payload
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError
from prismdbg.model import dtypes
from prismdbg.model.collective import Frame, PayloadRef, TensorMeta
from prismdbg_tui.session.views import SourceView, ValueView
from prismdbg_tui.timeline.recording import Recording

Numbers = NDArray[Any]

AROUND_LINES = 200
MAX_SOURCE_BYTES = 16 << 20
MAX_SOURCE_LINE = 400
MAX_PAYLOAD_BYTES = 256 << 20
MAX_TENSORS = 16
MAX_VALUES = 64
BINS = 32
_WHOLE = {"bool": "u1", "uint8": "u1", "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8"}
_KINDS = {**_WHOLE, "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "float32": "<f4"}
_KINDS = {**_KINDS, "float64": "<f8", "bfloat16": "<u2"}  # its upper half of a float32


class Sources:
    """Source files as the capsule holds them; of this machine where it holds none, and then it says so."""

    def __init__(self, capsule: Capsule) -> None:
        self._capsule = capsule
        self._inside: dict[str, Path] | None = None

    def around(self, frame: Frame) -> SourceView:
        lines, note = self._lines(frame.filename)
        first = max(1, frame.line - AROUND_LINES)
        return SourceView(
            filename=frame.filename,
            function=frame.name,
            line=frame.line,
            first=first,
            lines=tuple(_text_of(line) for line in lines[first - 1 : frame.line + AROUND_LINES]),
            note=note,
        )

    def _lines(self, filename: str) -> tuple[list[bytes], str]:
        if self._inside is None:
            files = (file for file in read_files(self._capsule) if file.place is Place.INSIDE)
            self._inside = {file.path: content_path(self._capsule, file) for file in files}
        if filename in self._inside:
            try:
                return _lines_of(open_plain(self._inside[filename])), "from the capsule"
            except OSError as error:
                return [], f"the capsule's copy cannot be read: {error.strerror}"
        try:
            lines = _lines_of(open_real(os.path.realpath(filename))) if filename.startswith("/") else []
        except (OSError, ValueError):  # the capsule's word, which may be no path at all
            lines = []
        return lines, "from this machine, may have changed" if lines else "no source available"


def _lines_of(opened: BinaryIO) -> list[bytes]:
    with opened as file:
        return file.read(MAX_SOURCE_BYTES).splitlines()  # as Python counts them: a form feed or U+2028 ends none


def _text_of(line: bytes) -> str:
    return line.decode("utf-8", "replace")[:MAX_SOURCE_LINE]


def received(recording: Recording, row: int) -> tuple[ValueView, ...]:
    """What the rank received, tensor by tensor; a text in its place where that is not recorded."""
    detail = recording.columns.collective(row)
    if detail.payload is None and detail.made:
        return (_text("out", f"synthesized ({detail.made}) and not stored; `prismdbg debug` computes it again"),)
    if detail.time_completed_ns is None:
        return (_text("out", f"nothing: the collective {recording.open_word(row)}"),)
    if detail.payload is None or not _is_kept(recording, detail.payload):
        return (_text("out", "what was received is not in the capsule"),)
    if detail.payload.size_bytes > MAX_PAYLOAD_BYTES:
        return (_text("out", f"{detail.payload.size_bytes} bytes: too large for statistics here"),)
    try:
        data = read_payload(recording.capsule.log, detail.payload)
    except CapsuleError as error:
        return (_text("out", str(error)),)
    return tuple(_tensors(detail.outputs, data))


def _is_kept(recording: Recording, payload: PayloadRef) -> bool:
    """Segments of before A are left out."""
    return (recording.capsule.log / payload_segment(payload.segment)).is_file()


def _tensors(metas: tuple[TensorMeta, ...], data: bytearray) -> Iterator[ValueView]:
    offset = 0
    for number, meta in enumerate(metas[:MAX_TENSORS]):
        size = math.prod(meta.shape) * dtypes.ITEM_BYTES.get(meta.dtype, 0)
        title = f"out[{number}]" if len(metas) > 1 else "out[0]"
        values = _values(meta, data[offset : offset + size])
        offset += size
        if values is None:
            yield _text(title, f"{meta}: elements of this type are not decoded here")
        else:
            yield ValueView(title, summary(values, meta))
    if len(metas) > MAX_TENSORS:
        yield _text("...", f"{len(metas) - MAX_TENSORS} more tensors")


def _values(meta: TensorMeta, data: bytearray) -> Numbers | None:
    kind = _KINDS.get(meta.dtype)
    if kind is None or len(data) != math.prod(meta.shape) * np.dtype(kind).itemsize:
        return None
    numbers = np.frombuffer(data, dtype=kind)
    return (numbers.astype(np.uint32) << 16).view(np.float32) if meta.dtype == "bfloat16" else numbers


def summary(values: Numbers, meta: TensorMeta) -> dict[str, object]:
    """The same form as an agent gives a tensor in."""
    numbers = values.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers whose sum or square no float64 holds
        stats = {
            "min": float(finite.min()) if len(finite) else None,
            "max": float(finite.max()) if len(finite) else None,
            "mean": float(finite.mean()) if len(finite) else None,
            "std": float(finite.std()) if len(finite) else None,
            "nan": int(np.isnan(numbers).sum()),
            "inf": int(np.isinf(numbers).sum()),
        }
    return {
        "kind": "tensor",
        "dtype": meta.dtype,
        "shape": list(meta.shape),
        "device": meta.device,
        "requires_grad": False,
        "stats": stats,
        "histogram": _histogram(finite),
        "slice": f"[:{MAX_VALUES}]" if len(values) > MAX_VALUES else "",
        "values": values[:MAX_VALUES].tolist(),
    }


def _histogram(finite: Numbers) -> dict[str, object] | None:
    """Over each number's share of the range: of the numbers themselves, bins may be narrower than their precision."""
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (math.inf, math.inf)
    if not math.isfinite(high - low):
        return None
    shares = (finite - low) / ((high - low) or 1.0)
    return {"low": low, "high": high, "counts": np.histogram(shares, bins=BINS, range=(0.0, 1.0))[0].tolist()}


def _text(title: str, text: str) -> ValueView:
    return ValueView(title, {"kind": "note", "text": text})
