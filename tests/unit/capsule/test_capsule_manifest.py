"""The manifest: what is written is read again; whatever else is read gives one CapsuleError."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from capsules import IMAGE, MANIFEST
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule import container_dump, layout
from prismdbg.capsule.manifest import FORMAT, FileEntry, Incident, IncidentKind, Manifest, Origin
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment

FILES = {"prismdbg/rank.json": FileEntry(3, "0" * 64), "checkpoint/pages-1.img": FileEntry(1 << 40, "ab" * 32)}
texts = st.text(st.characters(exclude_categories=["Cs"]))
moments = st.builds(Moment, st.integers(0, 50), st.integers(0, 50), st.integers(0, 5))


def altered(*path: str | int, value: Any) -> bytes:
    """The JSON of a good manifest with one field replaced; `...` removes it."""
    data = replace(MANIFEST, files=FILES).to_json()
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(data).encode()


@given(
    job=texts,
    moment=moments,
    kind=st.sampled_from(IncidentKind),
    notes=st.lists(texts),
    versions=st.dictionaries(texts, texts),
    ranks=st.lists(st.integers(0, 10**6), unique=True),
)
def test_what_is_written_is_read_again(
    job: str, moment: Moment, kind: IncidentKind, notes: list[str], versions: dict[str, str], ranks: list[int]
) -> None:
    manifest = replace(
        IMAGE,
        job=job,
        moment_b=Moment(100),
        incident=Incident(kind=kind, text=job, moment=moment),
        groups=(Group(name=job, ranks=tuple(ranks), desc="mesh_tp"),),
        notes=tuple(notes),
        versions=versions,
        files=FILES,
    )
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_path_that_is_no_utf8_survives() -> None:
    manifest = replace(MANIFEST, job=b"run-\xff".decode("utf-8", "surrogateescape"))
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("format",), "1", "format must be a whole number"),
        (("format",), 0, "format is 0"),
        (("format",), True, "format must be"),
        (("oldest_reader",), FORMAT + 1, "needs a reader of format"),
        (("job",), 7, "job must be a string"),
        (("job",), ..., "job is missing"),
        (("job",), "\ud800", "job must be a string"),
        (("rank",), -1, "rank is -1"),
        (("rank",), 2, "rank is 2 in a job of 2"),
        (("rank",), 1.0, "rank must be"),
        (("world_size",), 10**30, "world_size must"),
        (("created_ns",), None, "created_ns must be"),
        (("moment_a",), "later", "moment_a is 'later'"),
        (("moment_a",), "9" * 5000, "moment_a is '999"),
        (("moment_a",), "9.9", "moment_b is 2.2, before moment_a 9.9"),
        (("replayable_from",), "0.0", "replayable_from is 0.0, before moment_a"),
        (("origin",), "cloud", "origin is 'cloud', not one of image, start, state"),
        (("origin",), "image", "contains_raw_memory is false"),
        (("contains_raw_memory",), 1, "contains_raw_memory must be true or false"),
        (("incident",), "nan", "incident must be an object"),
        (("incident", "kind"), "meteor", "kind is 'meteor'"),
        (("groups",), {}, "groups must be a list"),
        (("groups", 0, "ranks"), ["0"], "ranks must contain only a whole number"),
        (("device_kinds",), [1], "device_kinds must contain only a string"),
        (("versions",), {"torch": 2}, "versions.'torch' must be a string"),
        (("files",), [], "files must be an object"),
        (("files", "prismdbg/rank.json", "sha256"), "0" * 63, "is not a sha256"),
        (("files", "prismdbg/rank.json", "sha256"), "G" * 64, "is not a sha256"),
        (("files", "prismdbg/rank.json", "size_bytes"), -1, "size_bytes is -1"),
        (("files", "prismdbg/manifest.json"), {"size_bytes": 1, "sha256": "0" * 64}, "names the manifest itself"),
        (("files", "prismdbg/rank.json/x"), {"size_bytes": 1, "sha256": "0" * 64}, "as a file and as a folder"),
        (("files", "../x"), {"size_bytes": 1, "sha256": "0" * 64}, "'../x'"),
        (("surprise",), 1, "'surprise' is not a field of this format"),
    ],
)
def test_an_altered_field_is_named(path: tuple[str | int, ...], value: Any, says: str) -> None:
    with pytest.raises(CapsuleError) as caught:
        Manifest.from_bytes(altered(*path, value=value), "X/prismdbg/manifest.json")
    assert says in str(caught.value)
    assert "X/prismdbg/manifest.json" in str(caught.value) or "files" in path


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"null",
        b"{",
        b"[" * 100_000,
        b'{"format": 1' + b"0" * 5000 + b"}",
        b'{"format": 1, "format": 1}',
        b'{"format": NaN}',
    ],
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(CapsuleError):
        Manifest.from_bytes(data)


def test_a_newer_format_that_this_reader_may_read_is_read() -> None:
    data = replace(MANIFEST, files=FILES).to_json() | {"format": FORMAT + 1, "memory_trace": {"kind": "new"}}
    assert Manifest.from_bytes(json.dumps(data).encode()).job == MANIFEST.job


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s), max_leaves=4
    )
)
def test_any_other_json_is_one_error(value: object) -> None:
    with pytest.raises(CapsuleError):
        Manifest.from_bytes(json.dumps(value).encode())


@given(
    st.sampled_from(sorted(MANIFEST.to_json())),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
)
def test_any_value_in_any_field_is_read_or_one_error(name: str, value: object) -> None:
    try:
        Manifest.from_bytes(altered(name, value=value))
    except CapsuleError as error:
        assert str(error)


@pytest.mark.parametrize(
    "name",
    [
        "config.dump", "spec.dump", "stats-dump", "checkpoint/core-1.img", "checkpoint/tmpfs-dev-73.tar.gz.img",
        layout.content("ab" * 32), "prismdbg/log/events.00000.seg", layout.FILES_INDEX, layout.SECRETS,
    ],
)  # fmt: skip
def test_names_of_a_capsule(name: str) -> None:
    assert layout.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", "/", "/etc/passwd", "..", "prismdbg/../x", "prismdbg/./x", "prismdbg//x", "prismdbg/x/", "./config.dump",
        "etc/passwd", "prismdbg/.hidden", "prismdbg/a b", "prismdbg/a\\b", "prismdbg/a\0b", "prismdbg/\u00e9", "C:/x",
        "prismdbg/" + "a" * 100, "checkpoint/stats-dump", "prismdbg/config.dump", "prismdbg/old-spec.dump.json",
        "prismdbg/network.status", "network.status", "checkpoint/a\n", "prismdbg/x\n",
    ],
)  # fmt: skip
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(CapsuleError):
        layout.check_name(name)


def test_every_kind_is_frozen() -> None:
    """A reader of this format knows these words; a new one needs a new format."""
    assert {*IncidentKind} == {"request", "exception", "nan", "hang", "oom", "slow", "signal", "lost"}
    assert {*Origin} == {"image", "start", "state"}
    assert FORMAT == 2


def test_a_run_of_any_name_has_a_container_id() -> None:
    """A folder's name may be no UTF-8."""
    named = replace(MANIFEST, job="run\udcff")
    assert len(container_dump.container_id(named)) == 64
    assert container_dump.container_id(named) != container_dump.container_id(MANIFEST)
