"""A capsule from a state snapshot, recorded by root, is replayed by a user who was made for this and may do nothing."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chain import CLI, prismdbg
from counting import short_folder
from jobs import ROOT, forked, plain_environment, recorded_by_command_line
from other_user import readable

from prismdbg.jobs.injection import cache_dir

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "stateful_mlp.py"
HOOKS = ROOT / "examples" / "vendored"
BOUND_S = 240


@pytest.fixture
def user() -> Iterator[pwd.struct_passwd]:
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("making another user needs root and useradd")
    name = f"prismdbg-{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
    made = pwd.getpwnam(name)
    try:
        yield made
    finally:
        subprocess.run(["userdel", name], check=True)
        shutil.rmtree(f"/tmp/prismdbg-replays-{made.pw_uid}", ignore_errors=True)  # where its sessions were


def test_another_user_without_criu_replays_what_root_recorded(user: pwd.struct_passwd, tmp_path: Path) -> None:
    env = plain_environment(PYTHONPATH=str(HOOKS))
    line = forked(PROGRAM, "--steps", 14, ranks=2)
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", "4", env=env)
    assert made.ended.code == 0, made.ended.output
    said = prismdbg("capture", made.run.path, "--rank", 1, "-o", tmp_path / "capsule")
    assert said.code == 0, said.err
    with short_folder() as home:
        home.chmod(0o755)
        shutil.copytree(tmp_path / "capsule", home / "capsule", symlinks=True)
        shutil.copytree(cache_dir() / "native", home / "cache" / "prismdbg" / "native", symlinks=True)
        subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(home)], check=True)
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        without = ["--bounding-set=-all", "--inh-caps=-all"]
        command = [*become, *without, *CLI, "replay", str(home / "capsule"), "--runtime", "local", "--json"]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f"{readable(home / 'keep')} && cd {ROOT} && exec {shlex.join(command)}"],
            env={**plain_environment(), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == "identical" and verdict["tally"]["synthesized"] == 0
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])
