"""What is kept in a capsule is found by place: in files, in received objects, in raw memory; sharing asks for it."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capsules import IMAGE, MANIFEST, RANK, make_capsule
from hypothesis import given
from hypothesis import strategies as st
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.capsule.log.notes import PROGRAM
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.secrets.masking import (
    redact_text,
)
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture import secret_search
from prismdbg.jobs.capture.redacted_lines import values_in_lines
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.jobs.capture.secret_search import State, pickled_texts, report
from prismdbg.jobs.storage.verify import verify
from prismdbg.model.collective import TensorMeta
from prismdbg.model.moment import Moment

SECRET = "q7" + "aB3x" * 6
OBJECT = {"lr": 0.1, "deep": [{"api_key": SECRET}], "name": "token"}


def capsule_of(
    path: Path, objects: tuple[object, ...] = (), files: tuple[Path, ...] = (), manifest: Manifest = MANIFEST
) -> Capsule:
    """`objects` were broadcast to the rank, each after some padding of another sender."""
    log = TinyLog(path.parent / f"{path.name}-log")
    log.group("0", (0, 1), "default_pg")
    for number, value in enumerate(objects, start=1):
        data = bytes(8) + pickle.dumps(value, protocol=4 + number % 2) + b"\x80\x04junk"
        log.complete(log.issue(0, number, op="c10d::broadcast_", outputs=[TensorMeta((len(data),), "uint8")]), data)
    log.complete(log.issue(1, 1), SECRET.encode())  # floats are no text
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, log.folder)
        add_files(writer, map(str, files))
        writer.add_json(layout.RANK, RANK)
        return writer.finish(replace(manifest, moment_b=Moment(1, 1)))


def test_a_received_object_is_read_without_unpickling_it(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "touched",))

    capsule = capsule_of(tmp_path / "capsule", (OBJECT, {"again": "hf_" + SECRET * 2}, [Evil(), {"password": "pw-x1"}]))
    found = report(capsule)
    places = {finding.place for finding in found.kept}
    assert places == {f"payload of 0.{n} (broadcast)" for n in (1, 2, 3)}
    assert not (tmp_path / "touched").exists()
    data = (capsule.log / "payload.00000.seg").read_bytes()
    masked = {data[hit.start : hit.stop].decode() for hit in found.hits}
    assert {SECRET, "hf_" + SECRET * 2, "pw-x1"} <= masked


def test_a_value_is_found_again_where_no_name_is_beside_it(tmp_path: Path) -> None:
    """Such as in the padding of an object that is gathered: it holds what the memory held before."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"api_key: {SECRET[::-1]}\n")
    capsule = capsule_of(tmp_path / "capsule", (["x", f"left {SECRET} over"], OBJECT, [SECRET[::-1]]), (settings,))
    found = report(capsule)
    again = {(hit.place, hit.what) for hit in found.hits if hit.what == secret_search.KNOWN}
    assert again == {(f"payload of 0.{n} (broadcast)", secret_search.KNOWN) for n in (1, 3)}
    data = (capsule.log / "payload.00000.seg").read_bytes()
    by_place = {hit.place: data[hit.start : hit.stop].decode() for hit in found.hits if hit.what == secret_search.KNOWN}
    assert set(by_place.values()) == {SECRET, SECRET[::-1]}


def test_a_name_that_a_pickle_holds_once_counts_each_time() -> None:
    values = [{"password": f"x-{number}-y"} for number in range(3)]
    texts = [text for _, text in pickled_texts(pickle.dumps(values, protocol=4))]
    assert texts == ["password", "x-0-y", "password", "x-1-y", "password", "x-2-y"]


@pytest.mark.parametrize(
    "part",
    [
        "eyJ", "eyJaaaaaaaa.eyJ", "authorization:", "https://", "://a:", "machine a ", "machine" + " " * 40, "key=",
        "cookie:a",
        "-----BEGIN PRIVATE KEY-----", "sk-", "AKIA", "password: '", 'secret="', "Bearer ", "token" * 8, "a.", "?sig=",
        "https://discord.com/api/webhooks/", "cloudant ibm cos sl_ ", "\\", "{", "_-.", "A_PASS=",
        "PASSPHRASE='a b c ", "a b ", "A_PASSWORD=\"aa bb\" ", "DB_PASS=a1\n", '"auth":"dTpw', "\nA_B",
        "a:", "token=", "a=b1\n",
    ],
)  # fmt: skip
def test_no_text_takes_long(part: str) -> None:
    """Of rules that look at a text again from each place, some would take hours."""
    text = part * (60_000 // len(part)) + " .eyj authorization cookie: machine"
    before = time.process_time()
    redact_text(text, (), find)
    assert time.process_time() - before < 10


def test_no_pickle_takes_long() -> None:
    data = b"\x80\x04" * 2000 + b"N0" * 100_000 + b"\xff"
    before = time.process_time()
    assert list(pickled_texts(data)) == []
    assert time.process_time() - before < 10


@given(st.binary(max_size=300))
def test_any_bytes_are_no_pickle_and_no_error(data: bytes) -> None:
    for start, text in pickled_texts(b"\x80\x04" + data):
        assert (b"\x80\x04" + data)[start : start + len(text.encode("utf-8", "surrogatepass"))] or not text


def test_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    settings, program, data = (tmp_path / name for name in ("settings.yaml", "train.py", "data.bin"))
    settings.write_text(f"lr: 0.1\napi_key: {SECRET}\n")
    program.write_text("password = input()\n")
    data.write_bytes(b"\0" + f"api_key: {SECRET}".encode())
    found = report(capsule_of(tmp_path / "capsule", files=(settings, program, data)))
    assert [finding.place for finding in found.kept] == [f"file {settings}:2"]
    assert found.unsearched == (f"file {data}: it is not a text file",)


def test_short_secrets_in_files_keep_a_capsule_from_being_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "deploy.cfg": "DB_PASS=hunter2x\nMYSQL_PASS='48291734'\nSMTP_AUTH=mailpw99\nADMIN_TOKEN=opensesame7\n",
        "hosts.json": json.dumps({"auth": "dXNlcjpzZWNyZXRwYXNz"}),
        "train.py": 'PASSPHRASE = "correct horse battery staple"\n',
        "harmless.yaml": "max_tokens: 20241231\npad_token: 50256\nn_pass: 2\npass_rate: 0.5\nport: 29500\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    capsule = capsule_of(tmp_path / "capsule", files=tuple(tmp_path / name for name in texts))
    places = {finding.place.rpartition("/")[2] for finding in report(capsule).kept}
    assert places == {*(f"deploy.cfg:{line}" for line in (1, 2, 3, 4)), "hosts.json:1", "train.py:1"}
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    assert "deploy.cfg:1" in capsys.readouterr().err


def test_a_token_in_a_file_that_is_no_text_is_found_and_masked(tmp_path: Path) -> None:
    token = "hf_" + "aB3" * 12
    data = tmp_path / "data.bin"
    data.write_bytes(b"\0\1" + token.encode() + b"\0")
    found = report(capsule_of(tmp_path / "capsule", files=(data,)))
    assert {(hit.start, hit.stop) for hit in found.hits} == {(2, 2 + len(token))}
    assert found.kept and found.unsearched


def test_what_is_too_large_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_search, "TEXT_BYTES", 100)
    monkeypatch.setattr(secret_search, "ALL_TEXTS_BYTES", 100)
    monkeypatch.setattr(secret_search, "PAYLOAD_BYTES", 100)
    (tmp_path / "data.txt").write_text("x" * 150 + f" api_key={SECRET}")
    capsule = capsule_of(tmp_path / "capsule", ({"text": "y" * 200},), (tmp_path / "data.txt",))
    found = report(capsule)
    assert found.kept == () and len(found.unsearched) == 2
    search = secret_search.Search(
        capsule.path, secret_search.read_files(capsule), {layout.LOG: read_log(capsule.log)}, known=(SECRET,)
    )
    assert [hit.place for hit in search.hits()] == [f"file {tmp_path / 'data.txt'}:1"]  # a known value, wherever it is


def log_of(folder: Path, lines: int) -> Path:
    """As a training script writes it, with a password behind so many lines."""
    line = "2026-11-26 03:12:45,123 INFO step loss=2.3456 lr=0.0003 tokens=4096\n"
    log = folder / "train.log"
    log.write_text(line * lines + "DB_PASSWORD=hunter2abcXYZ99\n" + line * 100)
    return log


def test_a_text_is_searched_to_its_end_before_it_is_shared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = 15_500  # more than a MiB
    capsule = capsule_of(tmp_path / "capsule", files=(log_of(tmp_path, lines),))
    found = report(capsule)
    assert [finding.place for finding in found.kept] == [f"file {tmp_path / 'train.log'}:{lines + 1}"]
    assert found.unsearched == found.cut_texts == ()
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    assert f"train.log:{lines + 1}: value of 'DB_PASSWORD'" in capsys.readouterr().err
    assert main.run(["pack", "--share", "--redact", str(capsule.path)]) == 0


@pytest.mark.parametrize("redact", [[], ["--redact"]])
def test_a_text_that_is_too_long_to_be_searched_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], redact: list[str]
) -> None:
    monkeypatch.setattr(secret_search, "ALL_TEXTS_BYTES", 1 << 16)
    (tmp_path / "data.bin").write_bytes(b"\0" * 100)
    capsule = capsule_of(tmp_path / "capsule", files=(log_of(tmp_path, 1000), tmp_path / "data.bin"))
    assert main.run(["pack", "--share", *redact, str(capsule.path)]) == 1
    said = capsys.readouterr().err
    assert "1 text file of" in said and "may contain secrets that were not searched for" in said
    assert f"train.log: only its first {1 << 16} bytes were searched by rules" in said and "data.bin" not in said
    assert main.run(["pack", "--share-anyway", str(capsule.path)]) == 0


def test_raw_memory_is_searched_and_never_said_to_be_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = make_capsule(tmp_path / "clean", IMAGE)
    assert [(finding.place, finding.state) for finding in report(capsule).kept] == [("checkpoint", State.KEPT)]
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    said = capsys.readouterr().err
    assert "cannot be searched exhaustively" in said and "--share-anyway" in said and "--origin start" in said
    images = tmp_path / "images"
    images.mkdir()
    filler = bytes(secret_search.MEMORY_CHUNK - 20)  # across two chunks
    (images / "pages-1.img").write_bytes(filler + b"\0API_KEY=x\0hf_" + SECRET.encode() * 2)
    with CapsuleWriter(tmp_path / "told") as writer:
        TinyLog(tmp_path / "log").issue(0, 1)
        writer.add_tree(layout.LOG, tmp_path / "log")
        writer.add_json(layout.RANK, RANK)
        writer.add_checkpoint(images)
        told = writer.finish(replace(IMAGE, moment_b=MANIFEST.moment_b))
    kinds = {finding.what for finding in report(told).kept if finding.place == "checkpoint/pages-1.img"}
    assert {"variable API_KEY", "Hugging Face token"} <= kinds


def memory_of(path: Path, image: Path, redacted: list[str]) -> Capsule:
    with CapsuleWriter(path) as writer:
        TinyLog(path.parent / "log").issue(0, 1)
        writer.add_tree(layout.LOG, path.parent / "log")
        writer.add_json(layout.RANK, {**RANK, "redacted": redacted})
        writer.add_file(f"{layout.CHECKPOINT}/pages-1.img", image)
        return writer.finish(replace(IMAGE, moment_b=MANIFEST.moment_b))


def test_of_memory_with_holes_the_rest_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole is zeros: a variable behind it begins an environment block."""
    image = tmp_path / "pages-1.img"
    with image.open("wb") as file:
        file.seek(50 << 20)
        file.write(b"API_KEY=x\0")
        file.seek(100 << 20)
        file.write(b"hf_" + SECRET.encode() * 2)
        file.truncate(150 << 20)
    capsule = memory_of(tmp_path / "capsule", image, ["API_KEY"])
    read = []
    searched = secret_search._windows
    monkeypatch.setattr(
        secret_search, "_windows", lambda data, start=0: read.append(len(data)) or searched(data, start)
    )
    kinds = {finding.what for finding in report(capsule).kept if finding.place == "checkpoint/pages-1.img"}
    assert {"variable API_KEY", "Hugging Face token"} <= kinds
    assert sum(read) < 4 << 20


def test_names_without_number_in_memory(tmp_path: Path) -> None:
    """A capsule may say that it took out 20,000 variables; a name is not always UTF-8."""
    image = tmp_path / "pages-1.img"
    image.write_bytes((b"\0N7=x\0OTHER=y\0LIKE_N8=z\0\xe9=1" + bytes(4000)) * 2000)
    before = time.process_time()
    many = [f"N{number}" for number in range(18_000)]
    found = report(memory_of(tmp_path / "capsule", image, [*many, "\udce9"]))
    assert time.process_time() - before < 10
    kinds = {finding.what for finding in found.kept if finding.place == "checkpoint/pages-1.img"}
    assert kinds == {"variable N7", "variable \udce9"}


@pytest.mark.parametrize("where", ["environment", "orig_argv", "incident", "note", "program"])
def test_an_old_or_foreign_capsule_is_searched_too(tmp_path: Path, where: str) -> None:
    """One that holds in the clear what this version would have taken out, and no list."""
    manifest, rank = MANIFEST, dict(RANK)
    if where == "incident":
        manifest = replace(manifest, incident=replace(manifest.incident, text=f"api_key={SECRET}"))
    elif where == "note":
        manifest = replace(manifest, notes=(f"token={SECRET}",))
    elif where != "program":
        rank |= {where: {"MY_TOKEN": SECRET} if where == "environment" else ["python", f"--url=https://me:{SECRET}@h"]}
    log = TinyLog(tmp_path / "log")
    log.issue(0, 1)
    if where == "program":
        log.note(PROGRAM, arguments=["docker", "login", "-p", "swordfish"], folder="/", nth=1)
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, tmp_path / "log")
        writer.add_json(layout.RANK, rank)
        capsule = writer.finish(manifest)
    (kept,) = {finding.place.split(" ")[0].rstrip(":") for finding in report(capsule).kept}
    assert kept == {"environment": "variable", "orig_argv": "argument", "program": "log"}.get(where, "manifest")


def test_masked_in_a_copy_and_the_capsule_itself_untouched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"lr: 0.1\napi_key: {SECRET}\n")
    capsule = capsule_of(tmp_path / "capsule", (OBJECT,), (settings,))
    before = {path: path.read_bytes() for path in capsule.path.rglob("*") if path.is_file()}
    target = tmp_path / "shared.tar.zst"
    assert main.run(["pack", "--share", "--redact", str(capsule.path), "-o", str(target)]) == ExitCode.OK
    assert main.run(["unpack", str(target), "-o", str(tmp_path / "there")]) == ExitCode.OK
    assert {path: path.read_bytes() for path in capsule.path.rglob("*") if path.is_file()} == before
    there = Capsule.open(tmp_path / "there")
    verify(there.path)
    held = [path for path in there.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert [path.name for path in held] == ["payload.00000.seg"]  # the floats, whatever they say
    payload = held[0].read_bytes()
    assert payload.count(SECRET.encode()) == 1 and pickle.loads(payload[8:])["deep"][0]["api_key"] == "*" * len(SECRET)  # noqa: S301
    assert {finding.state for finding in report(there).findings} == {State.REDACTED}
    assert "masked" in capsys.readouterr().err


def test_a_literal_that_was_redacted_in_a_traceback_is_found_in_the_program(tmp_path: Path) -> None:
    """What no rule finds there: the message told that it is a password, and the log has it no more."""
    program, other = tmp_path / "train.py", tmp_path / "other.py"
    program.write_text('import x\n\nraise RuntimeError("https://u:%s@h" % "s3cr3t-of-a-line")\n')
    other.write_text('NAME = "s3cr3t-of-a-line"\n')
    log = TinyLog(tmp_path / "log")
    log.issue(0, 1)
    frame = (
        f'  File "{program}", line 3, in <module>\n    raise RuntimeError("https://u:%s@h" % "<redacted>")\n    ^^^\n'
    )
    log.note("incident", incident="exception", text="https://u:<redacted>@h", traceback=["Traceback\n", frame, "E"])
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, log.folder)
        add_files(writer, (str(program), str(other)))
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    kept = {(finding.place, finding.what) for finding in report(capsule).kept}
    assert kept == {(f"file {path}:{line}", secret_search.KNOWN) for path, line in ((program, 3), (other, 1))}
    target = tmp_path / "shared.tar.zst"
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    assert main.run(["pack", "--share", "--redact", str(capsule.path), "-o", str(target)]) == ExitCode.OK
    assert main.run(["unpack", str(target), "-o", str(tmp_path / "there")]) == ExitCode.OK
    there = [path for path in (tmp_path / "there").rglob("*") if path.is_file()]
    assert [path for path in there if b"s3cr3t" in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("path", "line", "shown"),
    [
        ("train.py", 3, "other(<redacted>)"),
        ("train.py", 99, 'connect("<redacted>")'),
        ("gone.py", 1, 'connect("<redacted>")'),
        ("train.py", 2, 'print("<redacted>")'),  # the program itself says so
    ],
)
def test_a_line_that_is_another_now_tells_nothing(tmp_path: Path, path: str, line: int, shown: str) -> None:
    program = tmp_path / "train.py"
    program.write_text('connect("something-long")\nprint("<redacted>")\n' + "x = 1\n" * 9)
    log = TinyLog(tmp_path / "log")
    log.note("incident", traceback=[f'  File "{tmp_path / path}", line {line}, in f\n    {shown}\n', "<redacted>"])
    with CapsuleWriter(tmp_path / "capsule") as writer:
        files = add_files(writer, [str(program)])
        assert values_in_lines(writer.folder, files, [read_log(log.folder)]).values == ()


def test_options_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(make_capsule(tmp_path / "capsule").path)
    assert main.run(["pack", "--redact", path]) == ExitCode.USAGE
    assert main.run(["pack", "--share", "--share-anyway", path]) == ExitCode.USAGE
    assert main.run(["pack", "--share", path]) == ExitCode.OK  # nothing is in it
    assert capsys.readouterr().out == f"{path}.tar.zst\n"


def test_a_list_that_was_altered_is_refused(tmp_path: Path) -> None:
    listed = {"findings": [{"place": "variable X", "what": "y", "state": "fine"}]}
    capsule = make_capsule(tmp_path / "capsule", secrets=listed)
    with pytest.raises(CapsuleError, match="state is 'fine'"):
        report(capsule)
    assert json.loads((capsule.path / layout.SECRETS).read_text()) == listed
