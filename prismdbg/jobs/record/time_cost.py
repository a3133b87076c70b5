"""How much longer recording makes a step, as far as that was measured: the figures of docs/measurements.md."""

from __future__ import annotations

from collections.abc import Iterator

from prismdbg.jobs.record.record import RecordRequest

MEASURED_WITH = "a GPT of 6 M parameters under DDP over gloo with two ranks, on two shared cores without a GPU"
BARE, ONE_STEP, EIGHT_STEPS, FILLING = "1.020", "1.036", "1.034", "1.203"
CHECKPOINTS = "17.1 %"
SNAPSHOTS, FIRST_SNAPSHOTS = "0.982", "1.145"  # with one every 50 steps, and the window that these need
TRACED = "1.07"  # of docs/how-replay-works.md


def time_cost(request: RecordRequest, *, is_native: bool) -> str:
    """What was measured, and with what job, and which of these options were not."""
    if not is_native:
        return "not measured with the Python kernels, which are slower than the native recorder"
    parts = [f"{_measured(request)}, measured with {MEASURED_WITH} (docs/measurements.md)"]
    if request.memory:
        parts.append(
            f"with --memory, a step of one process took {TRACED} times the CPU time (docs/how-replay-works.md)"
        )
    if unmeasured := ", ".join(_unmeasured(request)):
        parts.append(f"not measured: {unmeasured}")
    return "; ".join(parts)


def _measured(request: RecordRequest) -> str:
    if request.state_every:
        return (
            f"recorded steps took {SNAPSHOTS} times as long with snapshots of the state every 50 steps, "
            f"{FIRST_SNAPSHOTS} times before the third"
        )
    if request.policy.checkpoint_every:
        return f"recorded steps took {ONE_STEP} times as long, and {CHECKPOINTS} more with checkpoints every 20 steps"
    if request.window_steps > 0:
        return (
            f"recorded steps took {EIGHT_STEPS} to {ONE_STEP} times as long, {FILLING} times until the window was full"
        )
    return f"recorded steps took {BARE} times as long"


def _unmeasured(request: RecordRequest) -> Iterator[str]:
    given = {
        "--window all": request.window_steps < 0,
        "--sketches": request.sketches,
        "--zero-memory": request.zero_memory,
    }
    return (name for name, is_given in given.items() if is_given)
