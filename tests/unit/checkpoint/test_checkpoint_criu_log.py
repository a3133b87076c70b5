"""The decisive line of criu's log, from logs as criu 4.2 writes them."""

from __future__ import annotations

import pytest

from prismdbg.checkpoint.criu_log import decisive_line, explain, explain_foreign, hint_for
from prismdbg.errors import CapsuleError

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
        (
            "(00.107879) pie: 87: Error (criu/pie/restorer.c:1883): Can't restore 0x5 mapping with 0xf\n"
            "(00.115658) Error (criu/cr-restore.c:1265): 87 exited, status=1\n",
            "Can't restore 0x5 mapping with 0xf",
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
        ("something that nobody has seen yet", "prismdbg doctor"),
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


def error_in(line: str) -> str:
    return f"{NOISE}(00.1)  7: Error (criu/x.c:1): {line}\n(00.2) Error (criu/cr-restore.c:2331): Restoring FAILED.\n"


@pytest.mark.parametrize(
    "line",
    [
        "Page entry address 7f5644000000 outside of VMA 7f5644053000-7f5648000000",
        "Core task state data missed",
        "Core info data missed for non-zombie",
        "x86: Corruption in FPU st_space area (got 1 but 32 expected)",
        "Bad number of sigactions in the image (3, want 62)",
        "Can't open core-8802.img: No such file or directory",
        "Unexpected EOF on (empty-image)",
        "Can't find a parent for 8796",
        "epoll: Can't add event on 0x000059: Bad file descriptor",
        "Can't restore pgid (8796/8796->77): Operation not permitted",
    ],
)
def test_a_fault_of_foreign_images_is_the_capsules(line: str) -> None:
    error = explain_foreign("restore rank 2", error_in(line))
    assert isinstance(error, CapsuleError) and line in str(error) and "altered" in error.hint
    assert explain("return to a checkpoint", error_in(line)).exit_code == 4  # its own images are no capsule


@pytest.mark.parametrize(
    "line",
    [
        "File tmp/log has bad size 12 (expect 9)",
        "Can't fork for 7: File exists",
        "cpu: FPU feature required by image is not supported on host (fpu:1 fxsr:1 osxsave:1 xsaves:0)",
        "Core march mismatch 3",
        "Can't open file usr/lib/x.so on restore: No such file or directory",
        "Can't open pages-1.img: Permission denied",
        "Can't map shmem: Cannot allocate memory",
        "something that nobody has seen yet",
    ],
)
def test_what_this_machine_lacks_is_no_fault_of_the_images(line: str) -> None:
    assert explain_foreign("restore rank 2", error_in(line)).exit_code == 4
