"""Foreign input that is damaged behind its hashes: one error, exit code 3, little memory, nothing outside."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from disk_space import files_of_any_size
from tiny_log import FLOATS, TinyLog

from prismdbg.capsule import checked_json, layout, limits
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import LogReader, read_log
from prismdbg.capsule.rank_json import RankJson
from prismdbg.checkpoint import bundle, images
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.emulate.external_donors import write_external
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.capture import rank_package
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.log.columns import read_columns
from prismdbg.log.rank_log import columns_of
from prismdbg.model.collective import TensorMeta, runs_of
from prismdbg.simulate.graph.mesh import Mesh
from tests.fuzz.commands import nothing_runs
from tests.fuzz.corpus import make_corpus, rank_json, write_log
from tests.fuzz.inputs import reseal
from tests.fuzz.places import NOT_RUN

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("hostile") / "corpus").bases["start"].parent


@pytest.fixture
def capsule(corpus: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(corpus / "start", tmp_path / "capsule"))


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(corpus / "run", tmp_path / "run"))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[None]:
    with nothing_runs(tmp_path):
        yield


def change(path: Path, **fields: Any) -> None:
    """Of a JSON file; None takes a field away."""
    data = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in data.items() if value is not None}))


def refused(said: pytest.CaptureFixture[str], *line: str | Path) -> str:
    """The error, which is one, and tells what to do."""
    assert main.run([str(word) for word in line]) == ExitCode.BAD_CAPSULE
    text = said.readouterr().err
    assert text.count("error: ") == 1 and "  try: " in text, text
    return text


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"environment": {"A": 1}}, "environment: 'A' must be a string"),
        ({"environment": []}, "environment must be an object"),
        ({"orig_argv": "train.py"}, "orig_argv must be a list"),
        ({"argv": [None]}, r"argv[0] must be a string"),
        ({"cwd": "/a\0b"}, "cwd must not contain a zero byte"),
        ({"executable": 7}, "executable must be a string"),
        ({"executable": None}, "executable is missing"),
        ({"torch_threads": 10**30}, "torch_threads must be a whole number of 64 bits"),
        ({"torch_threads": -1}, "torch_threads is -1, not between 0 and 4096"),
        ({"hardware": ["n1"]}, "hardware must be an object"),
        ({"folders": {"a": 1}}, "folders must be a list"),
        ({"in_flight": ["x"]}, "in_flight[0] must be a whole number"),
        ({"past_records": True}, "past_records must be a whole number"),
        ({"memory_cap": float("nan")}, "NaN is not a number"),
    ],
)
def test_what_a_rank_says_of_itself(
    capsule: Path, here: None, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], problem: str
) -> None:
    change(capsule / layout.RANK, **fields)
    reseal(capsule)
    assert problem in refused(capsys, "replay", capsule)
    if problem != "executable is missing":  # which only who runs it misses
        assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE


WORDS = [0] * 625


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cwd": "/" + 5000 * "a"}, "cwd has 5,001 bytes"),
        ({"cwd": "/tmp/" + 300 * "n"}, "cwd contains a name of 300 bytes"),
        ({"cwd": "/a" * 2000}, "cwd has 2,000 components"),
        ({"cwd": "work"}, "cwd is not an absolute path"),
        ({"executable": "/" + 5000 * "a"}, "executable has 5,001 bytes"),
        ({"executable": "python3"}, "executable is not an absolute path"),
        ({"socket": "/tmp/" + 300 * "n"}, "socket contains a name of 300 bytes"),
        ({"inject": "/a" * 2000}, "inject has 2,000 components"),
        ({"folders": ["/work", "/" + 5000 * "a"]}, "folders[1] has 5,001 bytes"),
        ({"absent": ["/tmp/" + 300 * "n"]}, "absent[0] contains a name of 300 bytes"),
        ({"changed": ["/a" * 2000]}, "changed[0] has 2,000 components"),
        ({"argv": [], "orig_argv": []}, "orig_argv is empty"),
        ({"orig_argv": ["python3", 131_072 * "x"]}, "orig_argv[1] has 131,073 bytes"),
        ({"orig_argv": ["x" * 100_000] * 70}, "orig_argv and environment have 7,00"),
        ({"environment": {"A=B": "1"}}, "environment contains a variable with the invalid name 'A=B'"),
        ({"environment": {"": "1"}}, "environment contains a variable with the invalid name ''"),
        ({"environment": {"A": 3_000_000 * "v"}}, "environment contains 'A' with a value of 3,000,000"),
        ({"environment": {f"A{i}": 100_000 * "v" for i in range(70)}}, "orig_argv and environment have 7,00"),
        ({"seeds": {"torch": "x"}}, "seeds torch must be"),
        ({"seeds": {"torch": 2**64}}, "seeds torch must be"),
        ({"seeds": {"random": "x"}}, "seeds random must be"),
        ({"seeds": {"random": [*WORDS[1:], 2**32]}}, "seeds random must be"),
        ({"seeds": {"numpy.random": [*WORDS[1:], 625]}}, "seeds numpy.random must be"),
        ({"uid": 2**40}, "uid is 1099511627776, not between"),
        ({"pid": 2**40}, "pid is 1099511627776, not between"),
        ({"world_size": 10**9}, "world_size is 1000000000, not between"),
        ({"rank": 2}, "rank is 2 in a job of 2"),
        ({"torch_threads": 10**9}, "torch_threads is 1000000000, not between"),
        ({"peak_bytes": 2**60}, "peak_bytes is"),
        ({"started_ns": "x"}, "started_ns must be"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:40],
)
def test_values_that_no_process_has(
    capsule: Path, here: None, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], problem: str
) -> None:
    change(capsule / layout.RANK, **fields)
    reseal(capsule)
    assert problem in refused(capsys, "replay", capsule)
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE
    assert problem in capsys.readouterr().out


@pytest.mark.parametrize("path", ["/" + 5000 * "a", "/tmp/" + 300 * "n", "/a" * 2000, "//proc/1/mem"])
@pytest.mark.parametrize("place", ["inside", "missing"])
def test_a_file_that_no_program_can_open(
    capsule: Path, here: None, capsys: pytest.CaptureFixture[str], path: str, place: str
) -> None:
    index = capsule / layout.FILES_INDEX
    files = json.loads(index.read_text())["files"]
    next(file for file in files if file["place"] == place)["path"] = path
    change(index, files=files)
    reseal(capsule)
    assert "files[" in (said := refused(capsys, "replay", capsule)) and ": path is " in said
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE


def test_what_a_real_process_may_have(capsule: Path, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    """At the bounds of what Linux takes, and what a program makes of `sys.argv`."""
    name = os.fsdecode(b"\xe9" * 255)
    deep = "/" + "/".join([name] * 15 + ["x" * 254])
    rank = {
        "cwd": deep, "folders": [deep], "absent": ["//tmp/x"], "argv": [], "executable": "/usr/bin/../bin/python3",
        "environment": {"A": (131_072 - 3) * "v", "B C": "", "\udce9": "=x="}, "uid": 2**32 - 1,
        "seeds": {"torch": 2**64 - 1, "random": [*WORDS[1:], 624], "jax": {"of": "a newer version"}},
        "torch_threads": 4096,
    }  # fmt: skip
    change(capsule / layout.RANK, **rank)
    reseal(capsule)
    assert main.run(["verify", str(capsule)]) == ExitCode.OK, capsys.readouterr()
    assert main.run(["replay", str(capsule)]) == ExitCode.LACKING
    assert NOT_RUN in capsys.readouterr().err


@pytest.mark.parametrize(
    "folders",
    [{"/usr": [["python3", "x", 5, 6]]}, {"/usr": [["python3", 493, 5]]}, {"/usr": [7]},
     {"/usr": [["../etc/x", 1, 2, 3]]}, {"usr": [["python3", 1, 2, 3]]}, {"/usr": [["a", 1, 2, 3]] * 2},
     {"/usr": [["a", 10**40, 2, 3]]}, [], {"/proc/self/root/etc": [["shadow", 416, 5, 6]]},
     {"/proc/self": [["root", 511, 0, 0, "/"]]}, {"/dev": [["sda", 432, 0, 0]]},
     {"/etc": [["ld.so.preload", 420, 5, 6]]}],
)  # fmt: skip
def test_the_list_of_installed_files(
    capsule: Path, here: None, capsys: pytest.CaptureFixture[str], folders: object
) -> None:
    change(capsule / layout.ENVIRONMENT, folders=folders)
    reseal(capsule)
    for command in ("verify", "build", "replay"):
        assert main.run([command, str(capsule)]) == ExitCode.BAD_CAPSULE
        assert "Traceback" not in capsys.readouterr().err


def log_of(folder: Path, record: Callable[[TinyLog], object]) -> Path:
    log = TinyLog(folder)
    log.complete(log.issue(0, 1))
    record(log)
    return folder


@pytest.mark.parametrize(
    "record",
    [
        lambda log: log.append(fmt.Kind.GROUP, b'{"name": ["a"], "ranks": [0]}'),
        lambda log: log.append(fmt.Kind.GROUP, b'{"name": "a", "ranks": [0, 0]}'),
        lambda log: log.append(fmt.Kind.GROUP, b'{"name": "a", "ranks": [-1]}'),
        lambda log: log.append(fmt.Kind.GROUP, b'{"name": "a", "ranks": [1e400]}'),
        lambda log: log.append(fmt.Kind.NOTE, b"[1]"),
        lambda log: log.append(fmt.Kind.NOTE, b'{"kind": "x", "kind": "y"}'),
        lambda log: log.append(fmt.Kind.NOTE, b"[" * 60_000),
        lambda log: log.append(fmt.Kind.NOTE, b"9" * 5000),
        lambda log: log.append(fmt.Kind.TEXT, fmt.TEXT.pack(1, 1 << 30)),
        lambda log: log.append(fmt.Kind.STACK, fmt.STACK.pack(1, 1 << 30)),
        lambda log: log.append(fmt.Kind.ISSUE, b""),
        lambda log: log.append(fmt.Kind.COMPLETE, bytes(8)),
        lambda log: log.note("failed", record_id="x", type="E", text="t", at_issue=False),
        lambda log: log.note("file", path=7),
        lambda log: log.note("exit", code="x"),
        lambda log: log.note("incident", moment="never"),
    ],
)
def test_both_readers_of_a_log_refuse_what_is_damaged(tmp_path: Path, record: Callable[[TinyLog], object]) -> None:
    folder = log_of(tmp_path / "log", record)
    with pytest.raises(CapsuleError, match=r"events\.00000\.seg is damaged at offset"):
        read_log(folder)
    try:
        columns = read_columns(folder)
    except CapsuleError as error:
        assert "is damaged at offset" in str(error)
    else:
        assert columns.damage is not None and len(columns) == 1, "what lies before it can be looked at"


def test_shapes_beyond_64_bits_have_one_size_in_both_readers(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "log")
    for shape in ((1 << 62, 1 << 62), (1 << 40, 1 << 30), (1 << 62, 3), (5,)):
        log.issue(0, 1, inputs=(TensorMeta(shape, "float32"),))
    of_values, of_columns = columns_of(read_log(log.folder)), read_columns(log.folder)
    assert of_values.size_bytes.tolist() == of_columns.size_bytes.tolist()


def test_files_that_only_look_like_segments_and_ranks(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "log")
    for name in ("events.x.seg", "events.00007.seg.seg", "events..seg"):
        (folder / name).write_bytes(b"x")
    (folder / "events.00001.seg").unlink()
    assert len(read_log(folder).collectives) == len(read_columns(folder)) > 0
    (folder / "events.00001.seg").mkdir()
    for read in (read_log, read_columns):
        with pytest.raises(CapsuleError, match="cannot be read: it is not a regular file"):
            read(folder)


def memory_taken(code: str, *arguments: str) -> tuple[int, float, str]:
    """By a program of its own: MiB at most, seconds of processor time, and what it printed."""
    # not ru_maxrss, which a process has from whoever started it
    peak = "print(next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')) >> 10)"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{peak}", *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    *said, mib = done.stdout.splitlines()
    return int(mib), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "\n".join(said)


READ_LOG = """
import sys
from pathlib import Path
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
try:
    print(len(read_log(Path(sys.argv[1])).collectives))
except CapsuleError as error:
    print(error)
"""


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_log_that_multiplies_its_tensors(tmp_path: Path, is_alike: bool) -> None:
    """1.2 MB of records, each of 65,535 tensors: as many lists would take gigabytes."""
    log = TinyLog(tmp_path / "log", segment_bytes=1 << 21)
    numbers = log.text("allreduce_"), log.text("0"), log.text("cpu")
    segment = bytearray(log.path.read_bytes())
    at = log.offset
    for number in range(10_000):
        head = fmt.ISSUE.pack(
            number, 1, 0, 7, number, 0, number, numbers[0], numbers[1], 0, numbers[2], -1, 0, 1, 0, 0, 0, 1, 0
        )
        body = head + fmt.TENSOR.pack(6, 1, 0, 65_535) + (0 if is_alike else number).to_bytes(8, "little")
        record = fmt.RECORD.pack(fmt.RECORD.size + len(body), fmt.Kind.ISSUE, 0) + body
        segment[at : at + len(record)] = record
        at += len(record)
    log.path.write_bytes(segment)
    mib, cpu_s, said = memory_taken(READ_LOG, str(log.folder))
    assert said == "10000" if is_alike else "tensors in lists that differ" in said
    assert mib < 400 and cpu_s < 10


def test_equal_lists_of_tensors_are_one(tmp_path: Path) -> None:
    """As an all_gather of a large world has them, in every step."""
    log = TinyLog(tmp_path / "log")
    many = (FLOATS,) * 3 + (TensorMeta((2, 3), "bfloat16"),)
    for number in range(3):
        log.issue(0, number + 1, op="allgather_", outputs=many)
    lists = [collective.outputs for collective in read_log(log.folder).collectives]
    assert lists[0] == many and lists[0] is lists[1] is lists[2]
    assert sum(count for _, count in runs_of(lists[0])) == 4


def sparse_package(folder: Path) -> bytes:
    """An archive of a few bytes with one member that says it is 8 GiB of hole."""
    info = tarfile.TarInfo("rank/boot.py")
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = b"S"
    block[386:482] = (b"00000000000\0" * 2).ljust(96, b"\0")
    block[482:483], block[483:495] = b"\0", b"100000000000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return zstandard.ZstdCompressor().compress(bytes(block) + bytes(1024))


def test_a_member_that_is_nearly_all_hole(tmp_path: Path) -> None:
    data = sparse_package(tmp_path)
    assert len(data) < 200
    with pytest.raises(CapsuleError, match="neither a regular file nor a folder"):
        rank_package.unpack(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_nearly_all_hole(capsule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = capsule / f"{layout.LOG}/payload.00000.seg"
    with files_of_any_size():
        os.truncate(path, 1 << 42)
    change(capsule / layout.MANIFEST, files=None)
    reseal(capsule)
    began = time.process_time()
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE
    assert "but is nearly all holes" in capsys.readouterr().out
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("run.json", {"started_wall_ns": "x"}),
        ("run.json", {"command": 7}),
        ("run.json", {"emulated": {"world": 2}}),
        ("supervisor.json", {"incidents": "x"}),
        ("supervisor.json", {"deaths": ["x"]}),
        ("ranks/0/rank.json", {"pid": "image"}),
    ],
)
def test_what_a_run_says_of_itself(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, fields: dict[str, Any]
) -> None:
    change(run / name, **fields)
    with pytest.raises(CapsuleError):
        read_json(run / name)
    for command in ("status", "why", "list"):
        code = main.run([command, str(run)])
        assert code in (ExitCode.OK, ExitCode.BAD_CAPSULE), (command, capsys.readouterr())


def test_json_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "link.json"):
        with pytest.raises(CapsuleError, match="not a regular file"):
            checked_json.read(tmp_path / name)


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_what_is_no_plain_file_holds_no_command(
    corpus: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive, the signature beside it, a segment of the log. Opening a pipe waits for whoever writes into it."""

    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")

    packed = tmp_path / "packed.tar.zst"
    assert main.run(["pack", str(corpus / "start"), "-o", str(packed)]) == ExitCode.OK
    capsys.readouterr()
    make(packed.with_name(f"{packed.name}.sig"))
    for command in ("inspect", "verify", "why", "unpack"):
        assert "it is not a regular file" in refused(capsys, command, packed)
    make(packed)
    for command in ("inspect", "verify", "unpack"):
        refused(capsys, command, packed)
    assert main.run(["why", str(packed)]) == ExitCode.USAGE
    capsys.readouterr()
    assert main.run(["list", str(tmp_path)]) == ExitCode.OK
    folder = Path(shutil.copytree(corpus / "start", tmp_path / "capsule"))
    make(folder / layout.LOG / "events.00001.seg")
    refused(capsys, "verify", folder)
    main.run(["why", str(folder)])
    assert "events.00001.seg cannot be read" in capsys.readouterr().out


def test_the_typed_border_takes_what_a_rank_writes() -> None:
    whole = rank_json(Path("/work"))
    assert checked_json.checked(RankJson, whole, "rank.json") is whole
    checked_json.checked(RankJson, {**whole, "of_a_newer_version": [1]}, "rank.json")
    checked_json.checked(RankJson, {**whole, "cwd": os.fsdecode(b"/caf\xe9")}, "rank.json")


@pytest.mark.criu
@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("pstree.img", b"", "cannot be read"),
        ("pstree.img", None, "cannot be read"),
        ("files.img", b"other", "it has type PSTREE"),
        ("pstree.img", b"\xff\xff\xff\xff", "an entry of -1 bytes"),
        ("pstree.img", b"\2\0\0\0\x08\7", "an entry lacks"),
        ("fs-7.img", b"number", "refers to entry 99"),
        ("files.img", b"short", "an address of 4 bytes"),
    ],
)
def test_a_process_image(
    corpus: Path, tmp_path: Path, name: str, data: bytes | None, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` reads it as a restore would."""
    from tests.fuzz.process_image import parsed, write_image

    capsule = Path(shutil.copytree(corpus / "image", tmp_path / "capsule"))
    assert main.run(["verify", str(capsule)]) == ExitCode.OK, capsys.readouterr()
    capsys.readouterr()
    folder = capsule / layout.CHECKPOINT
    path = folder / name
    kind, entries = parsed(path.read_bytes())
    if data is None:
        path.unlink()
    elif data == b"other":
        shutil.copyfile(folder / "pstree.img", path)
    elif data == b"number":
        write_image(path, kind, [{**entries[0], "cwd_id": 99}])
    elif data == b"short":
        last = next(entry for entry in reversed(entries) if entry["type"] == "INETSK")  # of IPv6
        last["isk"]["src_addr"] = [1]
        write_image(path, kind, entries)
    else:
        path.write_bytes(path.read_bytes()[:8] + data if data else data)
    with pytest.raises(CapsuleError, match=problem):
        images.read(bundle.find(), folder)
    reseal(capsule)
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE
    assert re.search(f"^bad   checkpoint: .*{problem}", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.criu
def test_a_process_image_that_asks_for_more_than_to_be_restored(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fuzz.process_image import write_memory

    capsule = Path(shutil.copytree(corpus / "image", tmp_path / "capsule"))
    (capsule / layout.CHECKPOINT / "mountpoints-12.img").write_bytes(b"x")
    reseal(capsule)
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE
    assert "contains mountpoints-12.img, which is not part of a process" in capsys.readouterr().out
    (capsule / layout.CHECKPOINT / "mountpoints-12.img").unlink()
    inventory = capsule / layout.CHECKPOINT / "inventory.img"
    inventory.write_bytes(inventory.read_bytes()[:4])  # its kind, and no entry
    reseal(capsule)
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE
    assert "inventory.img is empty" in capsys.readouterr().out
    shutil.copy(corpus / "image" / layout.CHECKPOINT / "inventory.img", inventory)
    write_memory(capsule / layout.CHECKPOINT, pages=2)  # CRIU would wait for the second one
    reseal(capsule)
    assert main.run(["verify", str(capsule)]) == ExitCode.BAD_CAPSULE
    assert "lacks memory: pages-1.img does not hold the 2 pages of pagemap-7.img" in capsys.readouterr().out
    monkeypatch.setattr(bundle, "reader", lambda: None)
    assert main.run(["verify", str(capsule)]) == ExitCode.OK
    assert "note  checkpoint was not checked: no CRIU on this machine" in capsys.readouterr().out


def test_every_bound_is_stricter_than_memory() -> None:
    assert limits.MAX_LISTED_TENSORS * 8 < 1 << 28 and limits.MAX_JSON_BYTES * 24 < 1 << 30


def test_a_log_is_followed_up_to_its_damage(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "log")
    log.issue(0, 1)
    log.append(fmt.Kind.NOTE, b"{}")
    reader = LogReader(log.folder)
    assert len(reader.poll()) == 1
    with pytest.raises(CapsuleError, match="note: kind is missing"):
        reader.poll()


def test_inputs_of_the_fuzzer(tmp_path: Path) -> None:
    """A bounded part of `make fuzz`, the same inputs each time."""
    fuzz(tmp_path, "40", "--seed", "12", "--seconds", "60")


def test_what_the_fuzzer_found(tmp_path: Path) -> None:
    """Inputs that were not well received once; their names say what was wrong."""
    fuzz(tmp_path, "--found", *map(str, sorted((ROOT / "tests" / "fuzz" / "found").iterdir())))


def fuzz(tmp_path: Path, *arguments: str) -> None:
    line = [sys.executable, "-m", "tests.fuzz", *arguments, "--keep", str(tmp_path / "kept")]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tui")])
    done = subprocess.run(
        line, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize(
    "line",
    [b"[]", b'{"key": 1, "rank": 0}', b'{"key": "a", "rank": 0, "file": "../../etc/shadow"}',
     b'{"key": "a", "rank": -1}', b'{"key": "a", "rank": 0, "mean": [1]}', b"\xff"],
)  # fmt: skip
def test_what_ranks_of_an_emulation_sent(run: Path, tmp_path: Path, line: bytes) -> None:
    change(run / "run.json", emulated={"world": 2, "mesh": {"dp": 2}})
    (run / "donors").mkdir()
    (run / "donors" / "0.jsonl").write_bytes(line + b"\n")
    with pytest.raises(CapsuleError, match=r"0\.jsonl, line 1"):
        write_external(RunFolder(run), Mesh.parse("dp=2"), tmp_path / "external")


def test_an_emulation_in_which_nobody_sent_anything_is_a_donor_too(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "ranks")
    (run / "ranks").mkdir()
    with pytest.raises(UsageError, match="contains no received values"):
        write_external(RunFolder(run), Mesh.parse("dp=2"), tmp_path / "of a recorded run")
    change(run / "run.json", emulated={"world": 2, "mesh": {"dp": 2}})
    assert write_external(RunFolder(run), Mesh.parse("dp=2"), tmp_path / "external") == 0


def test_what_ranks_of_an_emulation_sent_is_found(run: Path, tmp_path: Path) -> None:
    change(run / "run.json", emulated={"world": 2, "mesh": {"dp": 2}})
    (run / "donors").mkdir()
    line = {"key": "k", "rank": 0, "file": "0.bin", "mean": float("nan"), "deviation": 0.5, "of_a_newer_version": 1}
    (run / "donors" / "0.jsonl").write_text(json.dumps(line) + "\n")
    assert write_external(RunFolder(run), Mesh.parse("dp=2"), tmp_path / "external") > 0
