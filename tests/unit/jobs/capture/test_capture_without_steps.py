"""A job without an optimizer marks no step: a capture that waits for one says so long before its timeout."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.checkpoint.engine import DumpReport
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.jobs.capture import capture
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import NotWaitedFor


@pytest.mark.parametrize("has_steps", [False, True])
def test_what_it_waits_for_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_steps: bool) -> None:
    monkeypatch.setattr(capture, "UNMARKED_S", 0.0)
    log = TinyLog(tmp_path / "ranks" / "0")
    log.complete(log.issue(0, 1))
    if has_steps:
        log.step(1)
    (log.folder / "rank.json").write_text(json.dumps({"pid": os.getpid()}))
    taken = capture.Taken(
        images=tmp_path,
        moment=Moment(1 if has_steps else 0, 1),
        past_records=0,
        in_flight=(),
        report=DumpReport(images=tmp_path, images_bytes=0, frozen_ns=0, pages_bytes=0),
        paused_ns=0,
    )
    request = capture.CaptureRequest(run=RunFolder(tmp_path), rank=0, output=tmp_path / "c", timeout_s=0.2)
    said: list[str] = []
    with pytest.raises(WaitTimeout, match=r"waited 0\.2 s for step"):
        capture._follow(log.folder, taken, request, said.append)
    told = [text for text in said if "has not completed an optimizer step yet" in text]
    assert len(told) == (0 if has_steps else 1)
    assert all("--window 0" in text and "Ctrl-C" in text for text in told)


def test_it_ends_when_nobody_waits_any_more(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.complete(log.issue(0, 1))
    (log.folder / "rank.json").write_text(json.dumps({"pid": os.getpid()}))
    images = DumpReport(images=tmp_path, images_bytes=0, frozen_ns=0, pages_bytes=0)
    taken = capture.Taken(
        images=tmp_path, moment=Moment(0, 1), past_records=0, in_flight=(), report=images, paused_ns=0
    )
    request = capture.CaptureRequest(run=RunFolder(tmp_path), rank=0, output=tmp_path / "c", given_up=lambda: True)
    with pytest.raises(NotWaitedFor):
        capture._follow(log.folder, taken, request, lambda _: None)


def test_a_rank_that_ended_at_its_checkpoint_gives_no_capsule(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.complete(log.issue(0, 1))
    ended = subprocess.Popen(["true"])
    ended.wait()
    (log.folder / "rank.json").write_text(json.dumps({"pid": ended.pid}))
    images = DumpReport(images=tmp_path, images_bytes=0, frozen_ns=0, pages_bytes=0)
    taken = capture.Taken(
        images=tmp_path, moment=Moment(0, 1), past_records=1, in_flight=(), report=images, paused_ns=0
    )
    request = capture.CaptureRequest(run=RunFolder(tmp_path), rank=0, output=tmp_path / "c")
    with pytest.raises(RankLost, match="rank 0 has ended at its checkpoint: there is nothing to replay"):
        capture._follow(log.folder, taken, request, lambda _: None)


def test_how_far_the_rank_is_is_told_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.complete(log.issue(0, 1))
    log.step(1)
    log.step(2)
    (log.folder / "rank.json").write_text(json.dumps({"pid": os.getpid()}))
    images = DumpReport(images=tmp_path, images_bytes=0, frozen_ns=0, pages_bytes=0)
    taken = capture.Taken(
        images=tmp_path, moment=Moment(1, 1), past_records=0, in_flight=(), report=images, paused_ns=0
    )
    request = capture.CaptureRequest(
        run=RunFolder(tmp_path), rank=0, output=tmp_path / "c", timeout_s=0.2, window_steps=5
    )
    told: list[str] = []
    with pytest.raises(WaitTimeout):
        capture._follow(log.folder, taken, request, lambda _: None, told.append)
    assert set(told) == {"rank 0: in step 2, waiting for step 7"}
