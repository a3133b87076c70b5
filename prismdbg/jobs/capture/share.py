"""A capsule for others: refused while secrets are kept in it, or copied with every one of them masked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import SMALL_FILE_BYTES, Place, RankFile, add_index, read_files
from prismdbg.capsule.partial import partial_folder
from prismdbg.capsule.transfer import Transfer
from prismdbg.errors import PrismError
from prismdbg.jobs.capture.redacted_lines import read_part
from prismdbg.jobs.capture.secret_search import Finding, Hit, Report, State, to_json
from prismdbg.model.plurals import counted

SHOWN = 20


class SecretsKept(PrismError):
    """Not packed for others: they would read what nobody meant them to."""


def require_shareable(capsule: Capsule, found: Report, *, is_masked: bool = False) -> None:
    """`SecretsKept` where anything is kept that looks like a secret, with its places, or a text file was not searched
    to its end. `is_masked`: what could be masked is."""
    if not found.kept:
        _require_searched(capsule, found)
        return
    lines = [f"{finding.place}: {finding.what}" for finding in found.kept[:SHOWN]]
    if len(found.kept) > SHOWN:
        lines.append(f"and {len(found.kept) - SHOWN} more: prismdbg inspect --secrets {capsule.path.name}")
    hint = "use --redact to mask what can be masked, or --share-anyway to pack everything"
    if is_masked:
        hint = "--redact cannot mask these: take them out of the program and capture it again, or use --share-anyway"
    if capsule.manifest.contains_raw_memory:
        hint = "capture with --origin start, which contains no memory, or use --share-anyway to pack everything"
    raise SecretsKept(
        "\n".join([f"{capsule.path} contains {counted(len(found.kept), 'known or possible secret')}:", *lines]),
        hint=hint,
    )


def _require_searched(capsule: Capsule, found: Report) -> None:
    if not found.cut_texts:
        return
    lines = list(found.cut_texts[:SHOWN])
    if len(found.cut_texts) > SHOWN:
        lines.append(f"and {len(found.cut_texts) - SHOWN} more: prismdbg inspect --secrets {capsule.path.name}")
    which = f"{counted(len(found.cut_texts), 'text file')} of {capsule.path}"
    raise SecretsKept(
        "\n".join([f"{which} may contain secrets that were not searched for:", *lines]),
        hint="check the files, then use --share-anyway to pack everything",
    )


@contextmanager
def masked(capsule: Capsule, found: Report) -> Iterator[Capsule]:
    """A copy in which each byte of what was found is an asterisk; as it is where nothing can be masked.

    A file or an object that is masked is another one: a program that uses the value takes another way in a replay.
    """
    if not found.hits:
        yield capsule
        return
    with partial_folder(capsule.path.with_name("prismdbg-masked")) as folder:
        yield _copy(capsule, found, folder / capsule.path.name)


def _copy(capsule: Capsule, found: Report, target: Path) -> Capsule:
    by_part: dict[str, list[Hit]] = defaultdict(list)
    for hit in found.hits:
        by_part[hit.part].append(hit)
    written = {layout.CONFIG_DUMP, layout.SPEC_DUMP, layout.FILES_INDEX, layout.SECRETS}
    files = {file.sha256: file for file in read_files(capsule) if file.place is Place.INSIDE}
    renamed: dict[str, RankFile] = {}
    with CapsuleWriter(target) as writer:
        for name in sorted(capsule.manifest.files.keys() - written):
            source = capsule.path / name
            if name not in by_part:
                writer.add_file(name, source, Transfer.LINK)
            elif (file := files.get(name.rpartition("/")[2])) is not None:
                data = _mask(by_part[name], read_part(source, 0, SMALL_FILE_BYTES))
                renamed[file.sha256] = _add_content(writer, file, data)
            else:
                writer.add_masked(name, source, ((hit.start, hit.stop) for hit in by_part[name]))
        add_index(writer, [_renamed(file, renamed) for file in read_files(capsule)])
        findings = [replace(f, state=State.REDACTED) if _is_of(f, found.hits) else f for f in found.findings]
        writer.add_json(layout.SECRETS, {"findings": to_json(dict.fromkeys(findings))})
        return writer.finish(replace(capsule.manifest, files={}))


def _mask(hits: list[Hit], data: bytes) -> bytes:
    edited = bytearray(data)
    for hit in hits:
        edited[hit.start : hit.stop] = b"*" * (hit.stop - hit.start)
    return bytes(edited)


def _add_content(writer: CapsuleWriter, file: RankFile, data: bytes) -> RankFile:
    digest = sha256(data).hexdigest()
    if not writer.holds(layout.content(digest)):
        writer.add_bytes(layout.content(digest), data)
    return replace(file, sha256=digest)


def _renamed(file: RankFile, renamed: dict[str, RankFile]) -> RankFile:
    masked_file = renamed.get(file.sha256) if file.place is Place.INSIDE else None
    return file if masked_file is None else replace(file, sha256=masked_file.sha256)


def _is_of(finding: Finding, hits: tuple[Hit, ...]) -> bool:
    return any(finding == hit.finding for hit in hits)
