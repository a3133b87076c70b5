"""The decisive line of criu's log, from logs as criu 4.2 writes them."""

from __future__ import annotations

import pytest

from prismdbg.checkpoint.criu_log import decisive_line, explain, hint_for

NOISE = """\
(00.003745) Error (criu/tun.c:85): tun: Unable to create tun: No such file or directory
(00.031477) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted
"""
BAD_SIZE = (
    NOISE
    + """\
(00.101010)      7: Error (criu/files-reg.c:2104): File tmp/log has bad size 12 (expect 9)
(00.101020)      7: Error (criu/files.c:1213): Unable to open fd=3 id=0x1b
(00.120000) Error (criu/cr-restore.c:2331): Restoring FAILED.
"""
)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (BAD_SIZE, "File tmp/log has bad size 12 (expect 9)"),
        (
            NOISE + "(00.2) Error (criu/cr-dump.c:1): Dumping FAILED.\n",
            "tun: Unable to create tun: No such file or directory",
        ),
        ("(00.1) all is well\n", ""),
        ("", ""),
        (
            "Error (criu/kerndat.c:1): vdso: Failed to fill self vdso symtable",
            "vdso: Failed to fill self vdso symtable",
        ),
        ("(00.030691)  12518: Error (criu/sk-inet.c:9): Can't bind inet socket", "Can't bind inet socket"),
    ],
)
def test_the_first_error_that_is_not_noise_decides(log: str, line: str) -> None:
    assert decisive_line(log) == line


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("Can't fork for 7: File exists", "PID namespace"),
        ("File tmp/log has bad size 12 (expect 9)", "as long as it was"),
        ("Can't bind inet socket (id 3): Cannot assign requested address", "address"),
        ("Unable to restore capabilities: -1", "--origin start"),
        ("Can't get 1:16 opt: Operation not supported", "too old"),
        ("Can't open file usr/lib/x.so on restore: No such file or directory", "does not exist"),
        ("Unknown shit 600 (anon_inode:[io_uring])", "io_uring, which CRIU cannot save"),
        ("something that nobody has seen yet", "complete log"),
    ],
)
def test_known_failures_say_what_to_do(line: str, word: str) -> None:
    assert word in hint_for(line)


def test_the_error_says_what_was_tried_and_criu_s_own_words() -> None:
    error = explain("restore rank 2", BAD_SIZE)
    assert str(error) == "criu could not restore rank 2: File tmp/log has bad size 12 (expect 9)"
    assert error.exit_code == 4
    assert "it gave no reason" in str(explain("dump process 7", ""))
    assert "command not found" in str(explain("dump process 7", "", fallback="command not found\n"))
