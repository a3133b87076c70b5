"""The first process of a container works among the capsule's files before it has made the rank's place: none of them
may run as it. A locale of the capsule's names a character set, and glibc loads the module that the capsule has for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from prismdbg.jobs.injection import cache_dir
from prismdbg.runtime.docker_runtime import environment_of_starter
from prismdbg.runtime.own_python import OwnPython, own_python

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes the root folder")

HOSTS_LOCALE = Path("/usr/lib/locale/C.utf8/LC_CTYPE")
RAN = "the capsule's code runs in the starter"
MODULE = f"""
#include <unistd.h>
__attribute__((constructor)) static void run(void) {{ write(1, "{RAN}", {len(RAN)}); }}
int gconv_init(void *step) {{ return 0; }}
int gconv(void) {{ return 0; }}
"""


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, OwnPython]:
    """A capsule's files, and prismdbg's interpreter where a container has it."""
    if not HOSTS_LOCALE.is_file() or shutil.which("gcc") is None:
        pytest.skip(f"needs gcc and {HOSTS_LOCALE}")
    root, python = tmp_path / "root", own_python(cache_dir())
    inside = root / str(python.folder).lstrip("/")
    shutil.copytree(python.folder, inside, symlinks=True)
    locale, modules = root / "usr/lib/locale/UTF-8", root / "usr/lib/x86_64-linux-gnu/gconv"
    for folder in (locale, modules, root / "etc"):
        folder.mkdir(parents=True)
    (locale / "LC_CTYPE").write_bytes(HOSTS_LOCALE.read_bytes().replace(b"UTF-8\0", b"EVIL1\0"))
    (modules / "gconv-modules").write_text("module EVIL1// INTERNAL EVIL 1\nmodule INTERNAL EVIL1// EVIL 1\n")
    (tmp_path / "module.c").write_text(MODULE)
    build = ["gcc", "-shared", "-fPIC", "-w", "-o", str(modules / "EVIL.so"), str(tmp_path / "module.c")]
    subprocess.run(build, check=True, timeout=60)
    return root, python


def said(place: tuple[Path, OwnPython], environment: dict[str, str]) -> str:
    root, python = place
    program = "import sys, time, os; print(sys.flags.utf8_mode, time.tzname[0], os.fsdecode(b'\\xc3\\xa9'))"
    done = subprocess.run(
        [
            shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin") or "chroot",
            str(root),
            *python.command,
            "-I",
            "-S",
            "-c",
            program,
        ],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.stdout.decode()


def test_no_file_of_a_capsule_runs_as_the_first_process(place: tuple[Path, OwnPython]) -> None:
    assert RAN in said(place, {}), "the files of this test do no harm where nothing is done about them"
    assert said(place, environment_of_starter(place[1])) == "1 UTC \u00e9\n"
