"""Likely causes of a divergence: what is found, what is looked for without a result, and what the source calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prismdbg.session.causes import Facts, Unhidden, likely_causes
from prismdbg.session.divergence_text import render_divergence
from prismdbg.session.source_calls import Kind, SourceCall, source_calls

QUIET = Facts(from_start=True, values_only=True, recorded={"number of threads": "1"}, now={"number of threads": "1"})


def call(name: str, kind: Kind) -> tuple[SourceCall, ...]:
    return (SourceCall("/job/train.py", 7, name, kind),)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(QUIET, changed_files=("/job/snapshot.pt",)), "files were changed after the rank read them: /job/snap"),
        (
            replace(QUIET, gone_files=("/job/ckpt/.metadata",)),
            "possible: the program opened files that did not exist at the capture, so a replay lacks them: "
            "/job/ckpt/.metadata",
        ),
        (
            replace(QUIET, unhidden=Unhidden(unsearched=("/data",))),
            "possible: the replay may see files that were created or changed after the start moment: too many entries "
            "to check in /data",
        ),
        (
            replace(QUIET, unhidden=Unhidden(younger=("/job/ckpt/step9.pt",))),
            "possible: the replay sees files that were created or changed after the start moment: /job/ckpt/step9.pt",
        ),
        (
            replace(QUIET, unhidden=Unhidden(differing=("/job/train.py has changed since the capture",))),
            "the program ran on files that differ from the recorded ones: /job/train.py has changed since the capture",
        ),
        (
            replace(QUIET, unhidden=Unhidden(undated=("/job/out/config.yaml",))),
            "possible: files were created after the start moment, but have an older time: /job/out/config.yaml",
        ),
        (replace(QUIET, now={"number of threads": "8"}), "the number of threads was 1 in the recorded run and is 8 in"),
        (replace(QUIET, missing=("variable DB_PW",)), "so the program runs without it: variable DB_PW"),
        (
            replace(QUIET, unknown_seeds=("torch",)),
            "possible: the capsule lacks the start state of the random generators of to",
        ),
        (replace(QUIET, calls=call("uuid.uuid1", Kind.ENTROPY)), "no replay can repeat: train.py:7 uuid.uuid1"),
        (replace(QUIET, calls=call("uuid.uuid4", Kind.UNSEEDED)), "no replay can repeat: train.py:7 uuid.uuid4"),
        (
            replace(QUIET, calls=call("datetime.datetime.now", Kind.DATE), has_clock_reads=True),
            "possible: the program reads the time, which is not recorded there: train.py:7 datetime.datetime.now",
        ),
        (
            replace(QUIET, calls=call("datetime.datetime.now", Kind.DATE), has_dates=True),
            "reads the time, which is not recorded there: train.py:7 datetime.datetime.now",
        ),
        (
            replace(QUIET, calls=call("time.time", Kind.CLOCK)),
            "reads the time, which is not recorded there: train.py:7",
        ),
        (
            replace(
                QUIET,
                calls=call("time.time", Kind.CLOCK),
                has_clock_reads=True,
                times_not_recorded=("a.py:3 time.time",),
            ),
            "not recorded there: a.py:3 time.time",
        ),
        (replace(QUIET, calls=call("random.Random", Kind.UNSEEDED)), "no replay can repeat: train.py:7 random.Random"),
        (
            replace(QUIET, calls=call("os.path.exists", Kind.FILE)),
            "files that it did not read, so they are not in the capsule: train.py:7 os.path.exists",
        ),
        (replace(QUIET, calls=call("torch.empty", Kind.MEMORY)), "possible: a tensor is sent before all of it is writ"),
    ],
)
def test_each_cause_is_found_where_its_fact_is(facts: Facts, words: str) -> None:
    causes = likely_causes(facts)
    (found,) = causes.found
    assert words in found
    assert len(causes.not_found) == 5


def test_what_the_recording_has_is_no_cause() -> None:
    text = "import datetime, random, time, uuid\ntime.time(), datetime.datetime.now(), random.Random(), uuid.uuid4()"
    calls = source_calls({"/job/train.py": text})
    known = replace(QUIET, calls=calls, has_clock_reads=True, has_dates=True, has_root_of_seeds=True)
    assert len(calls) == 4 and likely_causes(known).found == ()


def test_nothing_is_found_where_nothing_is() -> None:
    causes = likely_causes(QUIET)
    assert causes.found == ()
    assert causes.not_found == (
        "changed files", "another environment", "uninitialized memory",
        "unseeded random numbers", "files that were checked but not read", "the current time",
    )  # fmt: skip


def test_what_is_certain_comes_first_and_what_most_programs_have_last() -> None:
    calls = (*call("time.time", Kind.CLOCK), *call("torch.empty", Kind.MEMORY), *call("os.path.exists", Kind.FILE))
    unhidden = Unhidden(undated=("/job/out/config.yaml",))
    found = likely_causes(replace(QUIET, calls=calls, unhidden=unhidden, now={"number of threads": "8"})).found
    named = ("the number of threads was 1", "files were created", "a tensor is sent", "checks for files", "the time")
    assert [word in text for word, text in zip(named, found, strict=True)] == [True] * 5, found


def test_memory_does_not_change_what_is_called() -> None:
    assert likely_causes(replace(QUIET, values_only=False, calls=call("torch.empty", Kind.MEMORY))).found == ()


def test_a_restored_process_goes_on_with_its_generators() -> None:
    facts = replace(QUIET, from_start=False, unknown_seeds=("torch",), calls=call("os.urandom", Kind.ENTROPY))
    assert likely_causes(facts).found == ()


def test_a_rank_that_cannot_say_what_it_runs_on() -> None:
    assert likely_causes(replace(QUIET, now={})).found == ()


def test_many_are_counted() -> None:
    (found,) = likely_causes(replace(QUIET, changed_files=tuple(f"/{n}" for n in range(9)))).found
    assert found.endswith("/0, /1, /2, /3 and 5 more")


SOURCE = """
import time, numpy as np, os as system
from datetime import datetime as when
from torch import empty
import torch.nn.functional
import random

def main():
    a = time.time()
    b = when.now()
    c = system.urandom(4)
    d = np.random.default_rng()
    e = np.random.default_rng(3)
    f = empty(3)
    g = model().to_empty(device="cpu")
    random.seed()
    random.seed(4)
    h = mine.time()
    torch.empty_like(f)
"""


def test_calls_are_found_whatever_they_are_called_by() -> None:
    found = source_calls({"/job/train.py": SOURCE, "/job/data.txt.py": "not python ("})
    assert [(one.line, one.name, one.kind) for one in found] == [
        (9, "time.time", Kind.CLOCK),
        (10, "datetime.datetime.now", Kind.DATE),
        (11, "os.urandom", Kind.ENTROPY),
        (12, "numpy.random.default_rng", Kind.UNSEEDED),
        (14, "torch.empty", Kind.MEMORY),
        (15, "to_empty", Kind.MEMORY),
        (16, "random.seed", Kind.UNSEEDED),
        (19, "torch.empty_like", Kind.MEMORY),
    ]


def test_the_story_tells_them() -> None:
    called: dict[str, Any] = {
        "profiling_name": "barrier",
        "process_group": "0",
        "inputs": [],
        "outputs": [],
        "frames": [],
    }
    event: dict[str, Any] = {"moment": "1.1", "expected": None, "actual": called, "differences": []}
    causes = {"found": ["the time"], "not_found": ["changed files", "another environment"]}
    told = render_divergence({**event, "causes": causes})
    assert "likely causes:\n  the time\nchecked and not found: changed files, another environment\n" in told
    assert "likely causes" not in render_divergence(event)


def test_questions_about_files_are_found_in_the_source() -> None:
    text = "import os.path as p\nfrom pathlib import Path\nif p.exists('a') or Path('b').is_file():\n    open('a')\n"
    found = source_calls({"/job/t.py": text})
    assert sorted((each.line, each.name.rpartition(".")[2], each.kind) for each in found) == [
        (3, "exists", Kind.FILE),
        (3, "is_file", Kind.FILE),
    ]
