"""What lives at B, where the program raises, and at the end: one sum a moment, recorded, replayed, in the debugger."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chain import INCIDENTS, Taken, prismdbg, recording
from jobs import torchrun

pytestmark = [pytest.mark.job]

CAP_BYTES = 8 << 20  # the second step of that size needs more


@pytest.fixture(scope="module")
def out_of_memory(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    job_line = torchrun(INCIDENTS / "nan" / "train.py", "--steps", 4, ranks=2)
    options = ("--memory", "--memory-cap", CAP_BYTES, "--trigger", "oom", "--window", "all")
    with recording(job_line, tmp_path_factory.mktemp("oom"), *options) as job:
        ended = job.end()
        assert job.capsules, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


@pytest.fixture(scope="module")
def recorded(out_of_memory: Taken) -> dict[str, Any]:
    said = prismdbg("memory", out_of_memory.capsule, "--json")
    assert said.code == 0, said.err
    return dict(said.json)


def test_b_and_the_end_are_two_moments(out_of_memory: Taken, recorded: dict[str, Any]) -> None:
    assert recorded["b_moment"] == str(out_of_memory.manifest.moment_b)
    assert recorded["b_bytes"] < recorded["end_bytes"], "after B the rank went on until it ran out of memory"
    assert recorded["end_moment"] == recorded["refused"][0]["moment"]
    assert not recorded["is_least"]
    said = prismdbg("memory", out_of_memory.capsule, "--at", recorded["b_moment"], "--json")
    assert said.json["program_bytes"] == recorded["b_bytes"]
    assert said.json["backend_bytes"] == 0 and recorded["backend_bytes"] == 0


def test_a_replay_says_the_same_of_each(out_of_memory: Taken, recorded: dict[str, Any], tmp_path: Any) -> None:
    """What the interpreter lets go of on its way out is no part of it."""
    options = (out_of_memory.capsule, "--runtime", "local", "--json")
    to_b = prismdbg("memory", *options, "--until", recorded["b_moment"])
    assert (to_b.json["end_moment"], to_b.json["end_bytes"]) == (recorded["b_moment"], recorded["b_bytes"])
    whole = prismdbg("memory", *options, "--keep", tmp_path / "trace")
    for name in ("peak_bytes", "moment", "b_moment", "b_bytes", "end_moment", "end_bytes", "refused"):
        assert whole.json[name] == recorded[name], name


def test_the_debugger_says_the_same_of_each_and_stays_where_it_is(
    out_of_memory: Taken, recorded: dict[str, Any]
) -> None:
    """At first nothing is traced: the rank is run again, to the exception and not to the collective before it."""
    b = recorded["b_moment"]
    lines = ["break exception", "continue", "memory", "print type", "restart", "delete"]
    lines += [f"until {b}", "memory", "trace on", "memory", "print allocated", "break exception", "continue", "memory"]
    lines += ["print allocated", "print type", "quit"]
    typed = "".join(f"{line}\n" for line in lines)
    said = prismdbg("debug", out_of_memory.capsule, "--runtime", "local", typed=typed)
    assert said.code == 0, said.out + said.err
    at_b, raised = f"{recorded['b_bytes']}", f"{recorded['end_bytes']}"
    assert re.findall(r"^live .*?\((\d+) bytes\) at (\S+)$", said.out, re.MULTILINE) == [
        (raised, recorded["end_moment"]), (at_b, b), (at_b, b), (raised, recorded["end_moment"]),
    ]  # fmt: skip
    assert re.findall(r"^\d{6,}$", said.out, re.MULTILINE) == [at_b, raised]
    assert [part.partition("\n")[0] for part in said.out.split("print type\n")[1:]] == ["'OutOfMemoryError'"] * 2
