"""One rank that moves its payload window about; prints nothing, asserts what the recorder says, reports moments."""

from __future__ import annotations

import contextlib

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, native, wait_for

from prismdbg.rank.recording.state_snapshots import keep_prologue

MIB = 1 << 20


def receive(size_bytes: int) -> None:
    """An all_reduce over one rank receives what it sends: the number of the step."""
    dist.all_reduce(torch.full((size_bytes,), native.stats()["step"], dtype=torch.uint8))


def files() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("payload.*.seg"))


def oldest(names: list[str]) -> int:
    """The number of the first segment, which has one step each."""
    return int(names[0].split(".")[1])


def on_disk_bytes() -> int:
    """Segments are removed in the background: one may go between listing and looking."""
    total = 0
    for path in FOLDER.glob("payload.*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def switched() -> None:
    """Off, on, off; each switch counts at once."""
    receive(10)
    native.window(True, 0, 0)
    receive(20)
    native.window(False, 0, 0)
    receive(30)


def steps() -> None:
    """Three steps are kept; those from 5 on are held when the window would drop them."""
    native.window(True, 3, 0)
    for step in range(10):
        native.begin_step(step, 1)
        if step == 8:
            native.keep_from(5)
        receive(MIB)
    native.begin_step(12, 1)


def rounds() -> None:
    """A snapshot every four steps, of which two count: what a round no longer needs, the next one writes over."""
    native.window(True, 1, 0)
    native.keep_from(0)
    seen: set[int] = set()
    for step in range(1, 42):
        native.begin_step(step, 1)
        receive(MIB - 100)
        now = {path.stat().st_ino for path in FOLDER.glob("payload.*.seg")}
        assert step <= 12 or now <= seen, f"step {step} has taken memory that was not in use"
        assert oldest(files()) >= (step - 1) // 4 * 4 - 5, "what a snapshot no longer needs is no segment any more"
        seen |= now
        if step % 4 == 0:
            native.keep_from(step - 4)
    assert len(seen) <= 13


def round_that_was_long() -> None:
    """What two rounds do not need is given back, and everything that is not needed where no snapshot follows."""
    native.window(True, 1, 0)
    native.keep_from(0)
    for step in range(1, 41):
        native.begin_step(step, 1)
        receive(MIB - 100)
    for step in range(41, 53):
        native.begin_step(step, 1)
        receive(MIB - 100)
        if step % 4 == 0:
            native.keep_from(step - 4)
    wait_for(lambda: len([*FOLDER.glob("payload.*")]) <= 13, 10, "what only the long round needed to be removed")
    native.keep_from(1 << 62)
    native.begin_step(53, 1)
    wait_for(lambda: len([*FOLDER.glob("payload.*")]) <= 3, 10, "what was kept for a snapshot to be removed")


def size() -> None:
    """No more than 8 MiB on disk."""
    native.window(True, 0, 8 * MIB)
    for step in range(20):
        native.begin_step(step, 1)
        receive(MIB)
        wait_for(lambda: on_disk_bytes() <= 8 * MIB, 10, f"what is too much at step {step} to be removed")


def large() -> None:
    """A payload never spans segments, however large."""
    native.window(True, 0, 0)
    for size_bytes in (100, 3 * MIB + 5, 100, 5 * MIB):
        receive(size_bytes)


def watched() -> None:
    """Somebody reads one segment that falls out of the window, and has another name for a second one."""
    native.window(True, 0, 4 * MIB)
    native.begin_step(1, 1)
    receive(MIB - 100)
    native.begin_step(2, 1)
    receive(MIB - 100)
    linked = FOLDER / "linked"
    linked.hardlink_to(FOLDER / "payload.00001.seg")
    with (FOLDER / "payload.00000.seg").open("rb") as reader:
        for step in range(3, 20):
            native.begin_step(step, 1)
            receive(MIB - 100)
            if step == 10:
                assert reader.read() == b"\x01" * (MIB - 100)
                assert linked.read_bytes() == b"\x02" * (MIB - 100)
                reader.close()
    assert not (FOLDER / "payload.00001.seg").exists()


def too_large() -> None:
    """A payload larger than the whole window ends the window, not the recording."""
    native.window(True, 0, 4 * MIB)
    receive(100)
    receive(5 * MIB)
    receive(100)
    assert "larger than the window" in native.stats()["lost"]
    assert native.stats()["mode"] == 1


def distant() -> None:
    """What is larger than all that may wait for a file server, in one tensor and in several."""
    native.window(True, 0, 0)
    receive(65 * MIB)
    receive(100)
    wait_for(lambda: on_disk_bytes() > 65 * MIB, 60, "the payload to be written")
    parts = [torch.zeros(13 * MIB, dtype=torch.uint8) for _ in range(5)]
    dist.all_reduce_coalesced(parts)
    receive(100)
    native.close_log()
    native.reopen_log()
    assert native.stats()["lost"] == ""


def beginning() -> None:
    """Small payloads outlive all that is larger, until the restore point; then they are the oldest of the window."""
    native.window(True, 0, 4 * MIB)
    assert native.keep_small(64 << 10, MIB) == (0, 0)
    receive(100)
    receive(5 * MIB)  # alone is left out
    receive(64 << 10)
    for _ in range(8):
        receive(MIB)
    receive(200)
    native.park(True)
    native.close_log()
    native.reopen_log()
    native.park(False)
    receive(300)
    assert native.stats()["payload_oldest_step"] == 1, "of this step much is gone"
    assert not native.stats()["lost"]
    kept = FOLDER / "prologue"
    keep_prologue(FOLDER, kept)
    not_kept, beyond = native.keep_small(0, 0)
    assert (not_kept, beyond) == (5 * MIB + 4 * MIB, 0), "the window has room for four of the eight"
    for step in range(1, 9):
        native.begin_step(step, 1)
        receive(MIB)
    assert native.keep_small(0, 0) == (0, 0)


def many_small() -> None:
    """Those for which there is no room are in the window as any others, and it is known how many they are."""
    native.window(True, 0, 4 * MIB)
    native.keep_small(64 << 10, 10 * 1024)
    for _ in range(5):
        receive(4 * 1024)
    receive(1024)
    receive(1024)
    assert native.keep_small(0, 0) == (0, 3 * 4 * 1024)


rank.record(direct=ARGUMENTS[0] != "distant")
rank.join()
{
    scenario.__name__: scenario
    for scenario in (
        switched,
        steps,
        rounds,
        round_that_was_long,
        size,
        large,
        watched,
        too_large,
        distant,
        beginning,
        many_small,
    )
}[ARGUMENTS[0]]()
rank.report({"stats": native.stats(), "files": files()})
dist.destroy_process_group()
