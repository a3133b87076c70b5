"""Verification: a whole capsule has no fault; every way to harm one is found and named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import capsules
import pytest
from capsules import IMAGE, MANIFEST, RANK, STATE, make_capsule
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_log import TinyLog, write_training

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.limits import MAX_FACTS, MAX_NAMED
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.records import RecordDecoder
from prismdbg.capsule.manifest import IncidentKind, Manifest
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError
from prismdbg.jobs.replay.verdict import End, Recorded, Seen, decide
from prismdbg.jobs.storage import inventory
from prismdbg.jobs.storage.verify import INCONCLUSIVE, Severity, findings, verify
from prismdbg.model import synthesis
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment

EVENTS = "prismdbg/log/events.00000.seg"
PAYLOADS = "prismdbg/log/payload.00000.seg"


def faults(path: Path) -> list[str]:
    return [str(f) for f in findings(path) if f.severity is Severity.FATAL]


def with_log(path: Path, write: Callable[[Path], object], manifest: Manifest = MANIFEST) -> Path:
    write(path.parent / "log")
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, path.parent / "log")
        writer.add_json(layout.RANK, RANK)
        writer.finish(manifest)
    return path


@pytest.mark.parametrize("manifest", [MANIFEST, IMAGE, STATE])
def test_a_whole_capsule(tmp_path: Path, manifest: Manifest) -> None:
    make_capsule(tmp_path / "capsule", manifest)
    notes = [str(note) for note in verify(tmp_path / "capsule")]
    assert notes[-1] == "prismdbg/manifest.json: made by a test"
    assert any("raw memory" in note for note in notes) == manifest.contains_raw_memory


@pytest.mark.parametrize(("past", "is_inconclusive"), [(6, True), (5, False)])
def test_a_capsule_in_which_nothing_can_be_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    past: int,
    is_inconclusive: bool,
) -> None:
    """It is whole, and what a replay would say of it is said before anybody runs one."""
    monkeypatch.setattr(capsules, "RANK", {**RANK, "past_records": past, "in_flight": []})
    path = tmp_path / "capsule"
    make_capsule(path, replace(MANIFEST, moment_a=Moment(2, 2), replayable_from=Moment(2, 2)))
    assert main.run(["verify", str(path), "--json"]) == ExitCode.OK
    said = capsys.readouterr()
    assert json.loads(said.out)["inconclusive"] is is_inconclusive
    assert (said.err.rstrip().endswith(f"but {INCONCLUSIVE}"), "ready to replay" in said.err) == (
        is_inconclusive,
        not is_inconclusive,
    )
    why = decide(Recorded(incident=IncidentKind.HANG, required=0), Seen(end=End.NOT_RUN)).why
    assert any(why in str(finding) for finding in verify(path)) is is_inconclusive


def test_no_capsule_at_all(tmp_path: Path) -> None:
    assert faults(tmp_path) != []
    with pytest.raises(CapsuleError):
        verify(tmp_path)


@pytest.mark.parametrize(("name", "depth"), [("d", 1500), ("d" * 250, 30)])
def test_folders_nested_deeper_than_anybody_looks(tmp_path: Path, name: str, depth: int) -> None:
    make_capsule(tmp_path / "capsule")
    here = os.open(tmp_path / "capsule", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert ("cannot be read: File name too long" in "".join(faults(tmp_path / "capsule"))) == (len(name) > 1)
    assert inventory.disk_bytes(tmp_path / "capsule") > 0
    inventory.remove(tmp_path / "capsule", force=False)
    assert list(tmp_path.iterdir()) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("name", ["config.dump", EVENTS, PAYLOADS, layout.RANK, "checkpoint/pages-1.img"])
@pytest.mark.parametrize(
    ("harm", "says"),
    [(flip, "has changed"), (cut, "bytes, expected"), (Path.unlink, "is missing"), (link, "link or a special file")],
)
def test_a_harmed_file_is_named(tmp_path: Path, name: str, harm: Callable[[Path], None], says: str) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    harm(capsule.path / name)
    assert any(name in fault and says in fault for fault in faults(capsule.path))
    with pytest.raises(CapsuleError):
        verify(capsule.path)


@pytest.mark.parametrize("name", ["extra", "prismdbg/extra", "checkpoint/extra", "prismdbg/log/extra"])
def test_an_extra_file_is_named(tmp_path: Path, name: str) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    (capsule.path / name).write_text("x")
    assert faults(capsule.path) == [f"'{name}' is not listed in the manifest"]


def test_an_extra_link_is_not_followed(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    (capsule.path / "prismdbg" / "more").symlink_to(tmp_path / "outside")
    assert faults(capsule.path) == ["'prismdbg/more' is not listed in the manifest"]


def rewrite_manifest(capsule: Capsule, **fields: object) -> None:
    data = capsule.manifest.to_json() | fields
    (capsule.path / layout.MANIFEST).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rank": 1}, "is of rank 0, expected 1"),
        ({"moment_b": "5.1"}, "ends at 2.2, before 5.1"),
        ({"origin": "image", "contains_raw_memory": True}, "is empty, but the origin is a checkpoint"),
        ({"format": 3, "oldest_reader": 3}, "needs a reader of format 3"),
    ],
)
def test_a_manifest_that_says_more_than_is_there(tmp_path: Path, fields: dict[str, object], says: str) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    rewrite_manifest(capsule, **fields)
    assert any(says in fault for fault in faults(capsule.path))


def test_a_state_where_there_is_none(tmp_path: Path) -> None:
    with_log(tmp_path / "capsule", lambda path: write_training(path, 3), STATE)
    assert any("is empty, but the origin is a state snapshot" in fault for fault in faults(tmp_path / "capsule"))


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("state.json", b'"past_records":0', b'"past_records":7', "begins at record 7, the capsule at 0"),
        ("state.json", b'"by_hand":false', b'"by_hand":"no"', "by_hand must be true or false"),
        ("tensors.safetensors", b'"shape":[2]', b'"shape":[9]', "do not fit the shape"),
        ("tensors.safetensors", b"[0,8]", b"[8,0]", "are not two offsets"),
    ],
)
def test_a_state_that_was_made_to_mislead(tmp_path: Path, name: str, old: bytes, new: bytes, says: str) -> None:
    """By somebody who made the manifest agree."""
    whole = make_capsule(tmp_path / "whole", STATE)
    with CapsuleWriter(tmp_path / "altered") as writer:
        for path in whole.manifest.files.keys() - {layout.CONFIG_DUMP, layout.SPEC_DUMP}:
            data = (whole.path / path).read_bytes()
            writer.add_bytes(path, data.replace(old, new) if path == f"{layout.STATE}/{name}" else data)
        writer.finish(STATE)
    assert any(says in fault for fault in faults(tmp_path / "altered"))


def test_an_image_where_none_should_be(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    rewrite_manifest(capsule, origin="start")
    assert any("contains a checkpoint" in fault for fault in faults(capsule.path))


@pytest.mark.parametrize("name", ["config.dump", "spec.dump", layout.RANK])
def test_a_required_part_that_the_manifest_forgot(tmp_path: Path, name: str) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    (capsule.path / name).unlink()
    files = capsule.manifest.to_json()["files"]
    del files[name]
    rewrite_manifest(capsule, files=files)
    assert faults(capsule.path) == [f"{name} is missing: every capsule has it"]


def test_no_log(tmp_path: Path) -> None:
    path = with_log(tmp_path / "capsule", lambda folder: folder.mkdir())
    assert any("nothing to replay" in fault for fault in faults(path))


def test_a_damaged_log_of_the_right_hash(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        log = write_training(folder)
        log.write(log.offset - 8, b"\x03")

    assert any("is damaged at offset" in fault for fault in faults(with_log(tmp_path / "capsule", write)))


def altered_call(at: int, value: bytes) -> Callable[[TinyLog], None]:
    """Writes a call that was altered `at` so many bytes from its record's begin."""

    def write(log: TinyLog) -> None:
        begin = log.offset
        log.complete(log.issue(9, 1), bytes(16))
        log.write(begin + at, value)

    return write


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (altered_call(8 + 76, b"\x09"), "unknown reduce operator 9"),
        (altered_call(8 + 80, b"\x03"), "requires a buffer of at least"),
        (altered_call(8 + 89, b"\x09"), "1 tensors do not fit into the record"),
        (altered_call(8 + 77, b"\x18"), "requires a buffer of at least"),  # a sketch that is not there
        (altered_call(8 + 92, b"\xff\xff\xff\xff"), "a collective of 4294967295 tensors; the limit is 65536"),
        (lambda log: log.issue(9, 1, device="cuda:0 stream x"), "'x' is not a stream"),
    ],
)
def test_a_record_that_cannot_be_decoded(tmp_path: Path, write: Callable[[TinyLog], object], says: str) -> None:
    """Also where no replay comes to it."""
    (found,) = faults(with_log(tmp_path / "capsule", lambda folder: write(write_training(folder))))
    assert found.startswith("prismdbg/log") and "events.00000.seg is damaged at offset " in found and says in found


def test_a_long_log_is_checked_by_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capsule from the program's start may hold millions of collectives, which are of few kinds."""
    path = with_log(tmp_path / "capsule", lambda folder: write_training(folder, steps=100))
    decode, decoded = RecordDecoder.collective, []

    def counted(self: RecordDecoder, *bodies: Any) -> Collective:
        decoded.append(bodies)
        return decode(self, *bodies)

    monkeypatch.setattr(RecordDecoder, "collective", counted)
    assert faults(path) == []
    assert 0 < len(decoded) < 5


@pytest.mark.parametrize(("offset", "size_bytes"), [(1 << 63, 16), ((1 << 64) - 8, 16), (0, (1 << 64) - 8), (80, 17)])
def test_a_payload_beyond_its_file(tmp_path: Path, offset: int, size_bytes: int) -> None:
    def write(folder: Path) -> None:
        log = write_training(folder)
        place = (offset, size_bytes, 0, -1, fmt.Status.OK, fmt.CompleteFlag.PAYLOAD, 0, 0)
        log.append(fmt.Kind.COMPLETE, fmt.COMPLETE.pack(log.issue(2, 3), 3000, *place))

    later = replace(MANIFEST, moment_b=Moment(2, 3))
    assert faults(with_log(tmp_path / "capsule", write, later)) == [
        "prismdbg/log lacks the data that 1 collective received: 2.3"
    ]


def test_a_missing_payload(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        log = write_training(folder)
        log.complete(log.issue(2, 3))

    later = replace(MANIFEST, moment_b=Moment(2, 3))
    assert faults(with_log(tmp_path / "capsule", write, later)) == [
        "prismdbg/log lacks the data that 1 collective received: 2.3"
    ]


def test_a_payload_file_that_is_too_short(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        write_training(folder)
        cut(folder / "payload.00000.seg")

    assert faults(with_log(tmp_path / "capsule", write)) == [
        "prismdbg/log lacks the data that 1 collective received: 2.2"
    ]


def test_no_payload_is_needed_before_replayable_from(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        log = TinyLog(folder)
        log.group("0", (0, 1))
        log.complete(log.issue(0, 1))
        log.complete(log.issue(0, 2), b"x" * 16)

    manifest = replace(MANIFEST, moment_b=Moment(0, 2), replayable_from=Moment(0, 2))
    path = with_log(tmp_path / "capsule", write, manifest)
    assert next(str(note) for note in verify(path)).startswith("prismdbg/log: not replayable before 0.2")


@pytest.mark.parametrize(
    ("op", "root", "received"),
    [
        ("allreduce_", -1, True),
        ("broadcast_", 0, False),
        ("broadcast_", 1, True),
        ("reduce_", 0, True),
        ("reduce_", 1, False),
        ("gather_", 0, True),
        ("gather_", 1, False),
        ("recv_", 1, True),
    ],
)
def test_which_collectives_receive(tmp_path: Path, op: str, root: int, received: bool) -> None:
    def write(folder: Path) -> None:
        log = TinyLog(folder)
        log.group("0", (0, 1))
        log.complete(log.issue(0, 1, op=op, root=root))

    path = with_log(tmp_path / "capsule", write, replace(MANIFEST, moment_b=Moment(0, 1)))
    assert bool(faults(path)) == received


def test_what_hangs_or_failed_received_nothing(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        from prismdbg.capsule.log.format import Status

        log = TinyLog(folder)
        log.group("0", (0, 1))
        log.complete(log.issue(0, 1), status=Status.FAILED)
        log.issue(0, 2)

    assert faults(with_log(tmp_path / "capsule", write, replace(MANIFEST, moment_b=Moment(0, 2)))) == []


MADE_AGAIN = {"flags": fmt.CompleteFlag.SYNTHESIZED, "made": synthesis.NUMBERS[synthesis.ECHO]}


@pytest.mark.parametrize(
    ("without", "needing"),
    [
        (({"op": "broadcast_", "root": 0}, {}), ({"op": "allreduce_", "root": 0}, {})),
        (({"op": "broadcast_", "root": 0}, {}), ({"op": "broadcast_", "root": 1}, {})),
        (({"outputs": ()}, {}), ({}, {})),
        (({"group": "unknown"}, {}), ({}, {})),
        (({}, {"status": fmt.Status.FAILED}), ({}, {})),
        (({}, MADE_AGAIN), ({}, {"made": MADE_AGAIN["made"]})),
        (({}, MADE_AGAIN), ({}, {**MADE_AGAIN, "made": synthesis.NUMBERS[synthesis.DONOR]})),
    ],
)
def test_calls_that_differ_in_one_thing_are_not_taken_for_one_kind(
    tmp_path: Path, without: tuple[dict[str, Any], dict[str, Any]], needing: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """The first and the third need no payload, the second does."""

    def write(folder: Path) -> None:
        log = TinyLog(folder)
        log.group("0", (0, 1))
        for number, (issued, completed) in enumerate((without, needing, without), 1):
            log.complete(log.issue(0, number, **issued), **completed)

    path = with_log(tmp_path / "capsule", write, replace(MANIFEST, moment_b=Moment(0, 3)))
    assert faults(path) == ["prismdbg/log lacks the data that 1 collective received: 0.2"]


def test_lost_records_are_counted(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        log = TinyLog(folder)
        log.issue(0, 1)
        log.records += 3
        log.issue(0, 5)

    path = with_log(tmp_path / "capsule", write, replace(MANIFEST, moment_b=Moment(0, 5)))
    assert faults(path) == ["prismdbg/log lacks 3 collectives between 0.1 and 0.5"]


@pytest.mark.parametrize(("first", "whole"), [((0, 4), True), ((0, 5), True), ((1, 1), True), ((0, 6), False)])
def test_where_the_log_may_begin(tmp_path: Path, first: tuple[int, int], whole: bool) -> None:
    """A rank is parked at the entry of a collective: A is that one, or the last that was issued."""

    def write(folder: Path) -> None:
        log = TinyLog(folder)
        log.issue(*first)

    manifest = replace(MANIFEST, moment_a=Moment(0, 4), replayable_from=Moment(0, 4), moment_b=Moment(*first))
    assert (faults(with_log(tmp_path / "capsule", write, manifest)) == []) == whole


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> Capsule:
    return make_capsule(tmp_path_factory.mktemp("altered") / "capsule", IMAGE)


@settings(max_examples=200)
@given(st.data())
def test_any_altered_byte_is_found(altered: Capsule, data: st.DataObject) -> None:
    path = altered.path / data.draw(st.sampled_from([*altered.manifest.files, layout.MANIFEST]))
    content = path.read_bytes()
    place, bits = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :])
    try:
        # white space in the manifest, or a text that means nothing to a replay, may be another
        assert faults(altered.path) != [] or (path.name == "manifest.json" and reads_the_same(altered))
    finally:
        path.write_bytes(content)


def reads_the_same(capsule: Capsule) -> bool:
    """Nothing signs the manifest itself: it is believed wherever it agrees with the files."""
    try:
        return Capsule.open(capsule.path).manifest.files == capsule.manifest.files
    except CapsuleError:
        return False


@pytest.mark.parametrize(
    ("manifest", "field", "path", "reason"),
    [
        (MANIFEST, "cwd", "/proc/self/root", "belongs to the kernel"),
        (MANIFEST, "cwd", "/work/../proc/self/root", "is not a plain absolute path"),
        (MANIFEST, "cwd", "/work/../work", "is not a plain absolute path"),
        (MANIFEST, "executable", "/proc/self/exe", "belongs to the kernel"),
        (MANIFEST, "executable", "/usr/bin/../../proc/self/exe", "belongs to the kernel"),
        (MANIFEST, "executable", "//proc/self/exe", "belongs to the kernel"),
        (STATE, "cwd", "/sys", "belongs to the kernel"),
        (IMAGE, "socket", "/proc/self/root/agent.sock", "belongs to the kernel"),
        (IMAGE, "inject", "/sys/kernel", "belongs to the kernel"),
        (IMAGE, "inject", "//run/inject", "is not a plain absolute path"),
        (MANIFEST, "cwd", "/", ""),
        (MANIFEST, "cwd", "/dev/shm/work", ""),
        (MANIFEST, "executable", "/venv/bin/../bin/python", ""),
        (IMAGE, "socket", "/agent.sock", "is not a plain absolute path"),
        (IMAGE, "cwd", "/proc", ""),  # CRIU's images decide where a restored rank works
    ],
)
def test_what_a_replay_refuses_among_the_kernels_files_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: Manifest, field: str, path: str, reason: str
) -> None:
    monkeypatch.setitem(RANK, field, path)
    make_capsule(tmp_path / "capsule", manifest)
    wanted = [f"prismdbg/rank.json: {field} is {path!r}, which {reason}"] if reason else []
    assert [fault for fault in faults(tmp_path / "capsule") if field in fault and path in fault] == wanted


MANY = [f"/data/{number}" for number in range(MAX_NAMED + 1)]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("folders", MANY, "folders contains 200,001 entries; the limit is 200,000"),
        ("folders", [f"/{n}{'/a' * 250}" for n in range(801)], "folders contains more than 200,000 folders"),
        ("absent", MANY, "absent contains 200,001 entries"),
        ("changed", MANY, "changed contains 200,001 entries"),
        ("listed", MANY[:10_001], "listed contains 10,001 entries; the limit is 10,000"),
        ("sys_path", MANY, "sys_path contains 200,001 entries"),
        ("in_flight", list(range(MAX_NAMED + 1)), "in_flight contains 200,001 entries"),
        ("redacted_arguments", MANY, "redacted_arguments contains 200,001 entries"),
        ("redacted", [f"V{number}" for number in range(30_000)], "redacted contains names of 198,890 bytes"),
        ("versions", dict.fromkeys(MANY[:5000], "1"), "versions contains 5,000 entries; the limit is 4,096"),
        ("hardware", dict.fromkeys(MANY[:5000], "1"), "hardware contains 5,000 entries"),
        ("emulation", dict.fromkeys(MANY[:5000], 1), "emulation contains 5,000 entries"),
        ("seeds", dict.fromkeys(MANY[:5000], 1), "seeds contains 5,000 entries"),
    ],
)
def test_no_list_of_rank_json_is_endless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: object, says: str
) -> None:
    monkeypatch.setitem(RANK, field, value)
    make_capsule(tmp_path / "capsule")
    assert any(fault.startswith(f"prismdbg/rank.json: {says}") for fault in faults(tmp_path / "capsule"))


@pytest.mark.parametrize(("name", "most"), [("notes", MAX_FACTS), ("device_kinds", MAX_FACTS), ("groups", MAX_NAMED)])
def test_no_list_of_a_manifest_is_endless(name: str, most: int) -> None:
    """Its entries are counted before any of them is read: these are wrong, too."""
    whole = MANIFEST.to_json()
    of_one = {"notes": "a", "device_kinds": "cpu", "groups": {"name": "", "ranks": [], "desc": "", "backend": ""}}[name]
    Manifest.from_bytes(json.dumps({**whole, name: [of_one] * 10}).encode())
    with pytest.raises(CapsuleError, match=f"{name} contains {most + 1:,} entries; the limit is {most:,}"):
        Manifest.from_bytes(json.dumps({**whole, name: [None] * (most + 1)}, separators=(",", ":")).encode())


def test_all_that_makes_folders_is_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container counts them: a capsule that it refuses is not ready."""
    monkeypatch.setitem(RANK, "folders", MANY[:-2000])
    file = {"place": "inside", "size_bytes": len(checked_json.dumps({})), "sha256": "0" * 64, "mode": 0o644}
    of_files = {"files": [{**file, "path": f"/other/{number}/x"} for number in range(2100)]}
    monkeypatch.setattr("prismdbg.capsule.files.layout.content", lambda _: f"{layout.OURS}/content.json")
    make_capsule(tmp_path / "capsule", files=of_files, content={})
    (fault,) = faults(tmp_path / "capsule")
    assert fault.startswith(
        "prismdbg/files.json: with the folders in prismdbg/rank.json names more than 200,000 folders"
    )


def test_what_multiprocessing_gave_a_rank_is_not_endless(tmp_path: Path) -> None:
    make_capsule(tmp_path / "most", spawned=bytes(16 << 20))
    assert faults(tmp_path / "most") == []
    make_capsule(tmp_path / "more", spawned=bytes((16 << 20) + 1))
    assert faults(tmp_path / "more") == ["prismdbg/spawned.pickle has 16,777,217 bytes; the limit is 16,777,216"]


def test_an_index_of_endless_files(tmp_path: Path) -> None:
    file = {"place": "missing"}
    make_capsule(tmp_path / "capsule", files={"files": [{**file, "path": path} for path in MANY[:100_001]]})
    assert any(
        "files contains 100,001 entries; the limit is 100,000" in fault for fault in faults(tmp_path / "capsule")
    )


@pytest.mark.parametrize(
    ("manifest", "field"),
    [(MANIFEST, "executable"), (MANIFEST, "orig_argv"), (STATE, "torch_threads"), (IMAGE, "socket"), (IMAGE, "inject")],
)
def test_a_capsule_without_what_a_replay_starts_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: Manifest, field: str
) -> None:
    monkeypatch.delitem(RANK, field)
    make_capsule(tmp_path / "capsule", manifest)
    assert f"prismdbg/rank.json: {field} is missing" in faults(tmp_path / "capsule")
