"""What was redacted in the lines of a traceback is taken from the program's own line, and from no other."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from capsules import MANIFEST, RANK
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import Place, RankFile, add_files
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture import redacted_lines
from prismdbg.jobs.capture.redacted_lines import values_in_lines
from prismdbg.jobs.capture.secret_search import KNOWN, Search, report
from prismdbg.rank.recording.exception_hooks import describe

SECRET = "s3cr3t-of-a-line"
CONNECT = f'connect("{SECRET}")'
SHOWN = 'connect("<redacted>")'


def frame(path: Path, line: int, *shown: str) -> str:
    return f'  File "{path}", line {line}, in f\n' + "".join(f"    {each}\n" for each in shown)


def found(tmp_path: Path, program: bytes, shown: Callable[[Path], str]) -> set[str]:
    """The values in a program, which a traceback of one entry lacks."""
    path = tmp_path / "train.py"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(program)
    log = TinyLog(tmp_path / "log")
    log.note("incident", incident="exception", traceback=[shown(path), "E"])
    with CapsuleWriter(tmp_path / "capsule") as writer:
        files = add_files(writer, [str(path)])
        return set(values_in_lines(writer.folder, files, [read_log(log.folder)]).values)


def searched(tmp_path: Path, *programs: tuple[bytes, Callable[[Path], str]]) -> Capsule:
    log = TinyLog(tmp_path / "log")
    log.issue(0, 1)
    paths = [tmp_path / f"train{number}.py" for number in range(len(programs))]
    for path, (program, _) in zip(paths, programs, strict=True):
        path.write_bytes(program)
    log.note("incident", incident="exception", traceback=[shown(p) for p, (_, shown) in zip(paths, programs)])  # noqa: B905
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, log.folder)
        add_files(writer, map(str, paths))
        writer.add_json(layout.RANK, RANK)
        return writer.finish(MANIFEST)


@pytest.mark.parametrize("margin", ["  | ", "    | ", "      | "])
def test_a_frame_of_an_exception_group(tmp_path: Path, margin: str) -> None:
    def shown(path: Path) -> str:
        return "".join(f"{margin}{line}\n" for line in frame(path, 2, SHOWN, "^^^^^^^").splitlines())

    assert found(tmp_path, f"x\n{CONNECT}\n".encode(), shown) == {SECRET}


def test_a_group_as_the_rank_describes_it(tmp_path: Path) -> None:
    """Not as this file believes that Python writes it."""
    path = tmp_path / "train.py"
    path.write_text(f'def f():\n    raise ValueError("https://u:%s@h" % "{SECRET}")\n')
    names: dict[str, Callable[[], None]] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(ValueError, match="https") as raised:
        names["f"]()
    log = TinyLog(tmp_path / "log")
    log.note("incident", **describe(ExceptionGroup("several", [ExceptionGroup("inner", [raised.value])])))
    with CapsuleWriter(tmp_path / "capsule") as writer:
        files = add_files(writer, [str(path)])
        assert values_in_lines(writer.folder, files, [read_log(log.folder)]).values == (SECRET,)


@pytest.mark.parametrize("literal", ['"s3cr3t-" "of-a-line"', r'"s3cr3t-of-\x61-line"', "value"])
def test_what_is_no_literal_of_the_line_is_not_found(tmp_path: Path, literal: str) -> None:
    """The rank redacts none of these in the line, so the traceback does not tell that there was a secret."""
    path = tmp_path / "train.py"
    program = f'value = "{SECRET}"\nraise ValueError("https://u:%s@h" % ({literal}))\n'
    path.write_text(program)
    with pytest.raises(ValueError, match="https") as raised:
        exec(compile(program, str(path), "exec"), {})
    log = TinyLog(tmp_path / "log")
    log.note("incident", **describe(raised.value))
    with CapsuleWriter(tmp_path / "capsule") as writer:
        files = add_files(writer, [str(path)])
        assert values_in_lines(writer.folder, files, [read_log(log.folder)]).values == ()


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_python_does(tmp_path: Path, character: str, end: str) -> None:
    program = "".join(f"{line}{end}" for line in (f"# {character * 40}", CONNECT, *["x = 1"] * 20))
    assert found(tmp_path, program.encode(), lambda path: frame(path, 2, SHOWN)) == {SECRET}


def test_a_line_that_the_traceback_cuts(tmp_path: Path) -> None:
    line = f'connect("{SECRET}", "other-s3cret", {"1, " * 400})'
    shown = line.replace(SECRET, "<redacted>").replace("other-s3cret", "<redacted>")

    def cut(at: int) -> Callable[[Path], str]:
        return lambda path: f"{frame(path, 1, shown[:at])[:-1]}... (of 1300 characters)"

    assert found(tmp_path / "a", f"{line}\n".encode(), cut(900)) == {SECRET, "other-s3cret"}
    for number, at in enumerate(range(shown.rindex("<redacted>") + 1, shown.rindex("<redacted>") + 11)):
        assert found(tmp_path / f"b{number}", f"{line}\n".encode(), cut(at)) == {
            SECRET
        }  # where the other ends is not told
    assert found(tmp_path / "c", f"{line}\n".encode(), cut(15)) == set()


@pytest.mark.parametrize("cookie", ["latin-1", "utf-8", "utf-8-sig", "gbk", "cp1252"])
def test_a_program_that_is_not_utf_8(tmp_path: Path, cookie: str) -> None:
    """Its secret is masked as the program's bytes have it."""
    sign = "\u4e2d" if cookie == "gbk" else "\xe9"
    program = f'# coding: {cookie.removesuffix("-sig")}\nconnect("{sign}", "{SECRET}-{sign}1")\n'.encode(cookie)
    shown = f'connect("{sign}", "<redacted>")'
    capsule = searched(tmp_path, (program, lambda path: frame(path, 2, shown)))
    places = {(hit.start, hit.stop) for hit in report(capsule).hits if hit.what == KNOWN}
    plain = f"{SECRET}-{sign}1".encode(cookie.removesuffix("-sig"))
    assert [program[start:stop] for start, stop in places] == [plain]


def test_bytes_that_are_in_no_encoding(tmp_path: Path) -> None:
    program = b'connect("s3cr3t-\xe9\xff")\n'
    capsule = searched(tmp_path, (program, lambda path: frame(path, 1, SHOWN)))
    assert [program[hit.start : hit.stop] for hit in report(capsule).hits] == [b"s3cr3t-\xe9\xff"]


@pytest.mark.parametrize("cookie", ["zlib", "punycode", "unicode_escape", "utf-7", "idna", "nonsense", "rot13"])
def test_a_codec_that_is_no_encoding_is_not_used(tmp_path: Path, cookie: str) -> None:
    program = f"# coding: {cookie}\n{CONNECT}\n".encode()
    assert found(tmp_path, program, lambda path: frame(path, 2, SHOWN)) == {SECRET}


def test_the_frames_own_line_comes_first(tmp_path: Path) -> None:
    program = f'{CONNECT}\nconnect("of-the-next-line-2")\n'.encode()
    assert found(tmp_path, program, lambda path: frame(path, 1, SHOWN)) == {SECRET}


def test_each_line_of_a_statement_is_looked_up_where_it_stands(tmp_path: Path) -> None:
    """As newer Pythons print it, with marks below the lines and without those in the middle."""
    program = f'login(\n    "user-1-here",\n\n    a,\n    b,\n    "{SECRET}",\n    "not-this-1",\n)\n'.encode()
    shown = ["login(", "~~~~~^", '"user-1-here",', "^^^^", "", "...<2 lines>...", '"<redacted>",', "^^^", ")"]
    assert found(tmp_path, program, lambda path: frame(path, 1, *shown)) == {SECRET}


def test_where_the_line_is_another_the_lines_around_it_are_searched(tmp_path: Path) -> None:
    program = f'x = "no-match-1"\n{CONNECT}\nconnect("not-this-one-2")\n'.encode()
    assert found(tmp_path / "a", program, lambda path: frame(path, 1, SHOWN)) == {SECRET}
    assert found(tmp_path / "b", program, lambda path: frame(path, 1, '"<redacted>")')) == set()


@pytest.mark.parametrize("shown", ["<redacted>", '"<redacted>', "<redacted> <redacted>"])
@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_line_with_nothing_but_what_was_redacted_tells_nothing(tmp_path: Path, shown: str, line: int) -> None:
    program = f'"{SECRET} a-b-c-d-1\n{CONNECT}\nx = "more-of-it-1"\n'.encode()
    assert found(tmp_path, program, lambda path: frame(path, line, shown)) == set()


def test_the_same_content_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, content = TinyLog(tmp_path / "log"), f"{CONNECT}\n".encode()
    log.note("incident", traceback=[frame(Path("train.py"), 1, SHOWN)])
    sha256 = hashlib.sha256(content).hexdigest()
    target = tmp_path / layout.content(sha256)
    target.parent.mkdir(parents=True)
    target.write_bytes(content)
    files = [RankFile(path=f"/{number}/train.py", place=Place.INSIDE, sha256=sha256) for number in range(1000)]
    read: list[Path] = []
    plain = redacted_lines.read_part
    monkeypatch.setattr(redacted_lines, "read_part", lambda path, *rest: read.append(path) or plain(path, *rest))
    assert values_in_lines(tmp_path, files, [read_log(log.folder)]).values == (SECRET,)
    assert read == [target]


def test_files_beyond_the_limit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The large ones, and such a capsule is not shared."""
    monkeypatch.setattr(redacted_lines, "ALL_FILES_BYTES", 10)
    programs = [f"{CONNECT}\n".encode(), b'connect("larger-one-123456")\n']
    found = report(searched(tmp_path, *((program, lambda path: frame(path, 1, SHOWN)) for program in programs)))
    assert [hit.place for hit in found.hits] == [f"file {tmp_path / 'train0.py'}:1"]
    expected = f"file {tmp_path / 'train1.py'}: not searched for what was redacted in tracebacks"
    assert found.unsearched == found.cut_texts == (expected,)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_one_clear_error(tmp_path: Path, kind: str) -> None:
    log, sha256 = TinyLog(tmp_path / "log"), "ab" * 32
    log.note("incident", traceback=[frame(Path("train.py"), 1, SHOWN)])
    target = tmp_path / layout.content(sha256)
    target.parent.mkdir(parents=True)
    make = {"link": lambda: target.symlink_to("/etc/passwd"), "pipe": lambda: os.mkfifo(target), "folder": target.mkdir}
    make[kind]()
    files = (RankFile(path="/train.py", place=Place.INSIDE, size_bytes=9, sha256=sha256),)
    rank_log = read_log(log.folder)
    with pytest.raises(CapsuleError, match="cannot be read"):
        values_in_lines(tmp_path, files, [rank_log])
    with pytest.raises(CapsuleError, match="cannot be read"):
        list(Search(tmp_path, files, {}).hits())
