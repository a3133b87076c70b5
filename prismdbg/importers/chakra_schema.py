"""Messages of Chakra execution traces, by the fields and numbers of the published schema (`et_def.proto`).

A file is a `GlobalMetadata` and then a `Node` for each operation, each behind its length as a varint.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import IO, Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "1.0.0"
SUFFIX = ".et"
_PACKAGE = "ChakraProtoMsg"
_FIELD = descriptor_pb2.FieldDescriptorProto

METADATA, COMP, SEND, RECV, COLLECTIVE = 1, 4, 5, 6, 7  # NodeType
COLLECTIVES = (  # CollectiveCommType, by number
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
# By message: name, number, type (a message by its name), whether it is repeated. Enumerations are numbers on the wire.
_FIELDS: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "AttributeProto": (
        ("name", 1, _FIELD.TYPE_STRING, False),
        ("int32_val", 7, _FIELD.TYPE_INT32, False),
        ("int64_val", 9, _FIELD.TYPE_INT64, False),
        ("uint64_val", 13, _FIELD.TYPE_UINT64, False),
        ("bool_val", 27, _FIELD.TYPE_BOOL, False),
        ("string_val", 29, _FIELD.TYPE_STRING, False),
    ),
    "GlobalMetadata": (("version", 1, _FIELD.TYPE_STRING, False), ("attr", 2, "AttributeProto", True)),
    "IOInfo": (
        ("values", 1, _FIELD.TYPE_STRING, False),
        ("shapes", 2, _FIELD.TYPE_STRING, False),
        ("types", 3, _FIELD.TYPE_STRING, False),
    ),
    "Node": (
        ("id", 1, _FIELD.TYPE_UINT64, False),
        ("name", 2, _FIELD.TYPE_STRING, False),
        ("type", 3, _FIELD.TYPE_INT32, False),
        ("ctrl_deps", 4, _FIELD.TYPE_UINT64, True),
        ("data_deps", 5, _FIELD.TYPE_UINT64, True),
        ("start_time_micros", 6, _FIELD.TYPE_UINT64, False),
        ("duration_micros", 7, _FIELD.TYPE_UINT64, False),
        ("inputs", 8, "IOInfo", False),
        ("outputs", 9, "IOInfo", False),
        ("attr", 10, "AttributeProto", True),
    ),
}
_VALUES = "value"  # the `oneof` of an attribute


class Messages(NamedTuple):
    """Classes of protobuf."""

    metadata: Any
    node: Any


@lru_cache(1)
def messages() -> Messages:
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        has_values = name == "AttributeProto"
        if has_values:
            message.oneof_decl.add(name=_VALUES)
        for field, number, kind, is_repeated in fields:
            label = _FIELD.LABEL_REPEATED if is_repeated else _FIELD.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                made.type = kind  # type: ignore[assignment]
            if has_values and number > 1:
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in ("GlobalMetadata", "Node"))
    return Messages(*map(message_factory.GetMessageClass, found))


def prefixed(message: Any) -> bytes:
    """A message behind its length."""
    data: bytes = message.SerializeToString()
    size, length = len(data), bytearray()
    while size > 0x7F:
        length.append(0x80 | size & 0x7F)
        size >>= 7
    return bytes([*length, size]) + data


def bodies(file: IO[bytes], most_bytes: int) -> Iterator[bytes]:
    """The messages' bytes. `ValueError` for one that is longer than `most_bytes`, or cut."""
    while (size := _length(file)) is not None:
        if size > most_bytes:
            raise ValueError(f"a message of {size} bytes")
        data = file.read(size)
        if len(data) < size:
            raise ValueError("its end inside a message")
        yield data


def _length(file: IO[bytes]) -> int | None:
    """None at the end of the file."""
    size = shift = 0
    while byte := file.read(1):
        size |= (byte[0] & 0x7F) << shift
        if not byte[0] & 0x80:
            return size
        if (shift := shift + 7) > 63:
            raise ValueError("a length of more than 64 bits")
    if shift:
        raise ValueError("its end inside a length")
    return None
