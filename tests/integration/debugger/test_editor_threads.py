"""A rank's Python threads in an editor: the one that issues the collectives moves, the others are looked at."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chain import recording
from dap_client import Editor
from jobs import forked
from spawning import Spawn

pytestmark = pytest.mark.job

PROGRAM = """
import threading
import torch
import torch.distributed as dist

def waits_for_orders():
    threading.Event().wait()

threading.Thread(target=waits_for_orders, name="loader", daemon=True).start()
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
"""


def test_other_threads_are_shown_with_their_stacks(
    tmp_path: Path, prismdbg_command: tuple[str, ...], spawn: Spawn, child_environment: dict[str, str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with recording(forked(program, ranks=2), tmp_path, "--window", "all") as job:
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    process: Any = spawn(*prismdbg_command, "dap", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, text=False)
    with closing(Editor(process.stdout, process.stdin)) as editor:
        editor.ask("initialize", adapterID="prismdbg")
        editor.ask("launch", capsule=str(job.run.path), rank=0, runtime="local")
        editor.next_event("initialized")
        editor.stopped_by("configurationDone")

        names = threads(editor)
        (loader,) = (number for number, name in names.items() if name == "loader")
        assert 1 in names and len(names) == 2, names
        frames = editor.ask("stackTrace", threadId=loader)["stackFrames"]
        (own,) = (frame for frame in frames if frame["name"] == "waits_for_orders")
        assert (own["line"], own["source"]["path"]) == (7, str(program))
        assert editor.ask("scopes", frameId=own["id"])["scopes"] == []
        refused = editor.refused("evaluate", expression="op", frameId=own["id"], context="watch")
        assert "values of another thread are not known" in refused

        editor.stopped_by("next", threadId=loader)  # it is the rank that moves, not this thread
        assert "0.2" in editor.ask("evaluate", expression="moment", context="hover")["result"]
        assert "no thread" in editor.refused("stackTrace", threadId=loader), "they were listed at another stop"
        assert threads(editor) == names, "a thread keeps its number"


def threads(editor: Editor) -> dict[int, str]:
    return {each["id"]: each["name"] for each in editor.ask("threads")["threads"]}
