"""`export`: a tensor of the stopped rank, written into a file of this machine."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.new_file import new_file
from prismdbg.debugger.driver import PROGRESS_S, Driver
from prismdbg.debugger.inspection import Inspection
from prismdbg.debugger.tensor_files import SUFFIXES, TensorShape, numpy_dtype, require_writer, widen
from prismdbg.errors import FacilityError, RuntimeFailure, UsageError
from prismdbg.log.timeline_file import TIMELINE, export_timeline
from prismdbg.model import dtypes
from prismdbg.model.typed_path import typed_path
from prismdbg.protocol.wire import InvalidMessage
from prismdbg.runtime.limits import available_bytes
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.line import Line, Verb

PIECE_BYTES = 1 << 20  # the most that a rank gives at once


class ExportVerb:
    """`capsule`: the one that is replayed, whose timeline can be written."""

    def __init__(self, driver: Driver, inspection: Inspection) -> None:
        self._driver, self._inspection = driver, inspection
        self.capsule: Capsule | None = None

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        return {Verb.EXPORT: self._export}

    def _export(self, line: Line) -> Answer:
        expression, _, name = line.text.rpartition(" ")
        if not expression:
            raise UsageError("export needs an EXPRESSION and a FILE", hint="type for example: export out[0] out.npy")
        path, expression = typed_path(name), expression.strip()
        if expression == TIMELINE and path.suffix not in SUFFIXES and self.capsule is not None:
            return answers.Done(what=export_timeline(self.capsule, path))
        write = require_writer(path)
        with new_file(path) as partial:
            tensor, pieces = self.tensor(expression)
            _require_room(tensor, shutil.disk_usage(path.parent).free, f"on the disk of {path.parent}")
            write(partial, expression, tensor, pieces)
        return answers.Done(what=f"{path}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]")

    def tensor(self, expression: str) -> tuple[TensorShape, Iterator[bytes]]:
        """Its bytes come in C order. `InvalidMessage` where what the rank says of them does not fit together."""
        first = self._inspection.tensor_bytes(expression, 0, PIECE_BYTES)
        if "dtype" not in first:
            raise RuntimeFailure(
                "this capsule contains an older prismdbg, which cannot export tensors",
                hint="capture the rank again with this version",
            )
        tensor = TensorShape(dtype=str(first["dtype"]), shape=tuple(first["shape"]))
        if tensor.dtype not in dtypes.ITEM_BYTES or tensor.size_bytes != first["bytes"]:
            raise InvalidMessage(f"the rank gave {first['bytes']} bytes of a {tensor.dtype}{list(tensor.shape)}")
        return tensor, self._pieces(expression, tensor.size_bytes, _decoded(first))

    def array(self, expression: str) -> np.ndarray[Any, np.dtype[Any]]:
        tensor, pieces = self.tensor(expression)
        dtype = numpy_dtype(tensor)
        _require_room(tensor, available_bytes(), "in the memory of this machine")
        data = bytearray()
        for piece in pieces:
            data += widen(piece) if tensor.dtype == "bfloat16" else piece
        return np.frombuffer(data, dtype).reshape(tensor.shape)

    def _pieces(self, expression: str, size_bytes: int, piece: bytes) -> Iterator[bytes]:
        done, told = len(piece), time.monotonic()
        yield piece
        while done < size_bytes:
            found = self._inspection.tensor_bytes(expression, done, PIECE_BYTES)
            piece = _decoded(found)
            if not piece or len(piece) > size_bytes - done:
                raise InvalidMessage("the rank gave other bytes of a tensor than it has")
            yield piece
            done += len(piece)
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                text = f"exporting: {done >> 20} of {size_bytes >> 20} MiB"
                self._driver.say_progress(text, self._driver.session.moment)


def _require_room(tensor: TensorShape, free_bytes: int, where: str) -> None:
    """How large a tensor is a rank may say as it likes. bfloat16 is widened."""
    needed_bytes = tensor.size_bytes * (2 if tensor.dtype == "bfloat16" else 1)
    if needed_bytes > free_bytes:
        raise FacilityError(
            f"a {tensor.dtype}{list(tensor.shape)} needs {needed_bytes >> 20:,} MiB; "
            f"{free_bytes >> 20:,} MiB are free {where}",
            hint="choose a part of it, as x[:100]",
        )


def _decoded(found: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(found["data"], validate=True)
    except ValueError:
        raise InvalidMessage("the rank gave bytes of a tensor that are not base64") from None
