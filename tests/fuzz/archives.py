"""Packed things, written by hand so that headers can say what no writer would: links, holes, sizes of nothing."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import zstandard

from prismdbg.capsule import layout
from tests.fuzz.records import changed_bytes, interesting
from tests.fuzz.values import TEXTS

_BLOCK = tarfile.BLOCKSIZE
_TYPES = (b"0", b"\0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"L", b"K", b"S", b"x", b"g", b"X", b"N", b"V")
_FIELDS = {"name": (0, 100), "mode": (100, 8), "size": (124, 12), "mtime": (136, 12), "type": (156, 1),
           "link": (157, 100), "magic": (257, 8), "prefix": (345, 155), "sparse": (386, 97),
           "real": (483, 12)}  # fmt: skip
_SIZES = (
    b"-1\0",
    b"77777777777\0",
    b"\x80" + bytes(10) + b"\x01",
    b"\xff" * 12,
    b"\x80" + b"\xff" * 11,
    b"abc\0",
    b"00\0",
)


@dataclass(slots=True)
class Block:
    header: bytearray
    content: bytes


def packed_capsule(capsule: Path, rng: Random) -> bytes:
    """The folder as one archive with something wrong, or, now and then, nothing."""
    names = [
        path.relative_to(capsule).as_posix()
        for path in sorted(capsule.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    names.sort(key=lambda name: name != layout.MANIFEST)
    blocks = [_block(name, (capsule / name).read_bytes()) for name in names]
    return compressed(archive(blocks, rng), rng)


def packed_package(data: bytes, rng: Random) -> bytes:
    """The half of prismdbg in a capsule, with other members."""
    try:
        plain = zstandard.ZstdDecompressor().stream_reader(data).read(1 << 24)
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            blocks = [_block(m.name, tar.extractfile(m).read()) for m in tar if m.isreg()]  # type: ignore[union-attr]
    except (tarfile.TarError, zstandard.ZstdError, OSError, MemoryError):  # a damaged one may claim any size
        return changed_bytes(data, rng)
    blocks.append(_block(rng.choice(("a.py", "a", "../a.py", "rank/../../a.py", "/a.py", "a" * 300 + ".py")), b"x"))
    return compressed(archive(blocks, rng), rng)


def archive(blocks: list[Block], rng: Random) -> bytes:
    for _ in range(rng.choice((0, 1, 1, 2))):
        _change(blocks, rng)
    body = b"".join(bytes(block.header) + block.content + bytes(-len(block.content) % _BLOCK) for block in blocks)
    ends = (bytes(2 * _BLOCK), bytes(2 * _BLOCK), b"", bytes(_BLOCK), bytes(100 * _BLOCK), bytes(2 * _BLOCK) + b"more")
    return body + rng.choice(ends)


def compressed(data: bytes, rng: Random) -> bytes:
    made: tuple[Callable[[], bytes], ...] = (
        lambda: _frame(data),
        lambda: _frame(data),
        lambda: _frame(data),
        lambda: _frame(data, write_content_size=False),
        lambda: _frame(data[: len(data) // 2]) + _frame(data[len(data) // 2 :]),
        lambda: b"\x50\x2a\x4d\x18\x04\0\0\0skip" + _frame(data),
        lambda: changed_bytes(_frame(data), rng),
        lambda: _frame(data)[: rng.randrange(1, 200)],
        lambda: _wide_window(data),
        lambda: _frame(data + bytes(1 << 26)),
        lambda: data,
    )
    return rng.choice(made)()


def _block(name: str, content: bytes) -> Block:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o600
    try:
        header = info.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")
    except UnicodeEncodeError:
        header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogatepass")
    return Block(bytearray(header), content)


def _change(blocks: list[Block], rng: Random) -> None:
    at = rng.randrange(len(blocks))
    block = blocks[at]
    choice = rng.random()
    if choice < 0.5:
        name, (start, size) = rng.choice(list(_FIELDS.items()))
        _write(block, start, size, _field(name, size, rng))
    elif choice < 0.6:
        blocks.insert(rng.randrange(len(blocks) + 1), block)
    elif choice < 0.68:
        del blocks[at]
        blocks or blocks.append(block)
    elif choice < 0.76:
        blocks.insert(at, _block(rng.choice(TEXTS).replace("\0", "") or "x", b"content"))
    elif choice < 0.84:
        blocks.insert(at, _special(rng))
    elif choice < 0.92:
        block.content = changed_bytes(block.content, rng)
    else:
        rng.shuffle(blocks)


def _field(name: str, size: int, rng: Random) -> bytes:
    if name == "type":
        return rng.choice(_TYPES)
    if name in ("size", "mtime", "mode", "real"):
        return rng.choice(_SIZES)
    if name == "sparse":
        return b"00000000000\0" + b"00000000001\0" * 3
    return rng.choice((*(text.encode("utf-8", "surrogatepass") for text in TEXTS), interesting(8, rng)))[:size]


def _special(rng: Random) -> Block:
    """A link, a device, an extension record, a file that is nearly all hole."""
    kind = rng.choice(_TYPES)
    records = (b"30 path=" + b"../../escaped/file", b"26 size=99999999999999999\n", b"22 GNU.sparse.major=1\n",
               b"999999999999 path=x\n", b"-5 path=x\n", b"11 path=\xff\n" * 200, b"x" * 3000)  # fmt: skip
    block = _block("prismdbg/special", rng.choice(records) if kind in b"xgXLK" else b"")
    _write(block, *_FIELDS["type"], kind)
    if kind in (b"1", b"2"):
        _write(block, *_FIELDS["link"], rng.choice((b"/etc/passwd", b"../../escaped", b"prismdbg/manifest.json")))
    if kind == b"S":
        _write(block, *_FIELDS["sparse"], b"00000000000\0" + b"00000000001\0" + bytes(73))
        _write(block, *_FIELDS["real"], b"100000000000")
    return block


def _write(block: Block, start: int, size: int, value: bytes) -> None:
    """And the checksum, so that it is read further."""
    block.header[start : start + size] = value[:size].ljust(size, b"\0")
    block.header[148:156] = b" " * 8
    block.header[148:156] = b"%06o\0 " % sum(block.header[:_BLOCK])


def _frame(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(level=1, **options).compress(data)  # type: ignore[arg-type]


def _wide_window(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(data[: 1 << 16]) + compressor.flush()
