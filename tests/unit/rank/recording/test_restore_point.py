"""The restore point, and the snapshots of what is registered there: when they are taken, and that they never harm."""

from __future__ import annotations

import copy
import errno
import gc
import importlib.util
import io
import os
import pickle
import pickletools
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchdata.nodes import IterableWrapper
from torchdata.nodes import Loader as NodesLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from waiting import wait_for

import prismdbg
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.state_snapshot import StateSnapshot
from prismdbg.rank.recording import restore_point, state_snapshots
from prismdbg.rank.recording.loader_state import state_of
from prismdbg.rank.recording.state_snapshots import StateSnapshots
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.settings.state_folders import states_of
from prismdbg.settings.state_hold import HoldWatch, hold, hold_file, release

SYNTHESIZED = "a replay synthesizes them"
CROWDED = (
    "rank 0 received more than 256.0 MiB in small payloads before its restore point; 4.0 KiB of them may be dropped "
    f"(--window-bytes 9 B), and {SYNTHESIZED}"
)
SAMPLES = list(range(9))
VENDORED = Path(__file__).parents[4] / "examples" / "vendored" / "prismdbg_hooks.py"


class Loader:
    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.taken += 1
            yield self.taken

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]


class Full(io.TextIOBase):
    """As a file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Recorder:
    """Counts as if every step had ten collectives."""

    def __init__(self) -> None:
        self.step = self.between_steps = 0
        self.kept_from: list[int] = []
        self.windows: list[tuple[Any, ...]] = []
        self.keeps_small, self.not_kept = True, (0, 0)
        self.refuses, self.refused = False, 0

    def refuse(self, on: bool) -> int:
        refused, self.refuses, self.refused = self.refused, on, 0
        return refused

    def stats(self) -> dict[str, int]:
        return {"step": self.step, "collective": 3, "events": 10 * self.step + self.between_steps + 3}

    def sequences(self) -> list[tuple[str, str, int, int, int]]:
        return [("0", "", -1, 0, 10 * self.step)]

    def keep_from(self, step: int) -> None:
        self.kept_from.append(step)

    def keep_small(self, each_bytes: int, total_bytes: int) -> tuple[int, int]:
        self.keeps_small = bool(each_bytes or total_bytes)
        return self.not_kept

    def window(self, *told: Any) -> None:
        self.windows.append(told)


class Job:
    """A program and its recording: `step` ends one step, `begin` begins the next."""

    def __init__(self, home: Path, every: int, **objects: Any) -> None:
        self.recorder, self.notes = Recorder(), []  # type: ignore[var-annotated]
        self.home = home / "states" / "0"
        (home / "ranks" / "0").mkdir(parents=True)
        self.recording: Any = SimpleNamespace(
            recorder=self.recorder,
            window=self.recorder.window,
            config=SimpleNamespace(home=str(home), run=str(home), node="", window_steps=0, window_bytes=9),
            folder=home / "ranks" / "0",
            rank=0,
            lost="",
            is_open=True,
            ensure_open=lambda: True,
            note=lambda kind, **data: self.notes.append((kind, data)),
        )
        self.model = torch.nn.Linear(2, 2)
        self.loader = Loader()
        self.batches = iter(self.loader)
        self.snapshots = StateSnapshots(cast(Any, self.recording), every)
        self.objects = objects or {"model": self.model, "loader": self.loader}

    def end_step(self, source: StepSource = StepSource.OPTIMIZER) -> None:
        self.recorder.step += 1
        self.snapshots.on_step(self.recorder.step, source)

    def begin_step(self) -> None:
        next(self.batches)
        self.model(torch.ones(1, 2))

    def evaluate(self, collectives: int = 0) -> None:
        self.model.eval()
        with torch.no_grad():
            self.model(torch.ones(1, 2))
        self.model.train()
        self.recorder.between_steps += collectives

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.begin_step()
            self.end_step()

    def await_steps(self, *steps: int) -> None:
        """And until their writer is done."""
        wait_for(
            lambda: states_of(self.home) == list(steps) and not self.snapshots._is_busy,
            20,
            f"the snapshots of steps {steps}",
        )

    def snapshot(self, step: int) -> StateSnapshot:
        return StateSnapshot.read(self.home / str(step))


def vendored() -> Any:
    spec = importlib.util.spec_from_file_location("prismdbg_hooks", VENDORED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=[lambda: prismdbg, vendored], ids=["package", "one file"])
def hooks(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_nothing_happens_where_nobody_listens(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_point, "_handler", None)
    assert hooks.restore_point(model="anything") is None
    monkeypatch.delitem(sys.modules, "prismdbg.rank.recording.restore_point")
    assert hooks.restore_point(model="anything") is None


def test_who_listens_is_told_and_answers(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handler: Callable[[dict[str, Any]], int] = lambda objects: len(objects)  # noqa: E731
    monkeypatch.setattr(restore_point, "_handler", handler)
    assert hooks.restore_point(model=1, optimizer=2) == 2


def test_a_snapshot_is_of_the_boundary_between_two_steps(tmp_path: Path) -> None:
    """The loader and the generators as the step left them, the rest as the next forward pass finds it."""
    job = Job(tmp_path, 3)
    job.snapshots.reached(job.objects)
    job.steps(3)
    drawn = torch.get_rng_state()
    with torch.no_grad():
        job.model.weight.fill_(7.0)  # as a schedule or an average of weights may do after the step
    torch.rand(3)
    before_forward = torch.get_rng_state()
    job.begin_step()
    job.await_steps(3)
    snapshot = job.snapshot(3)
    assert (snapshot.step, snapshot.past_records, snapshot.sequences) == (3, 33, (("0", "", -1, 0, 30),))
    assert snapshot.objects["loader"] == ["dict", [["taken", 3]]]
    assert bytes.fromhex(snapshot.random["torch"]) == bytes(drawn.tolist())
    assert bytes.fromhex(snapshot.random_at_forward["torch"]) == bytes(before_forward.tolist())
    assert b"\x00\x00\xe0\x40" * 4 in (job.home / "3" / "tensors.safetensors").read_bytes(), "four times 7.0"


def test_a_snapshot_that_a_signal_s_handler_interrupts_is_taken_a_step_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)

    def handler(_number: int, _frame: Any) -> None:
        raise ValueError("preempted")

    job = Job(tmp_path, 3)
    job.snapshots.reached(job.objects)
    job.steps(3)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(job.snapshots._staging, "copy", interrupted)
            with pytest.raises(ValueError, match="preempted"):
                job.begin_step()
    finally:
        signal.signal(signal.SIGUSR1, before)
    job.end_step()
    job.begin_step()
    job.await_steps(4)
    job.end_step()
    job.steps(1)
    job.begin_step()
    job.await_steps(4, 6)
    assert job.notes[-1][0] == "state_snapshot"


def test_between_two_epochs_the_snapshot_waits_a_step(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    other = iter(Loader())
    job.snapshots.reached(job.objects)
    job.steps(2)
    job.batches = iter(job.loader)
    job.steps(1)
    assert states_of(job.home) == []
    next(other)
    iter(Loader())  # another one's beginning says nothing
    job.begin_step()
    job.await_steps(3)
    job.steps(1)
    job.begin_step()
    job.await_steps(3, 4)
    assert Loader.__iter__.__qualname__ == "Loader.__iter__", "nobody watches any more"


def test_where_no_registered_module_is_called_the_step_is_the_boundary(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.snapshots.reached(job.objects)
    for _ in range(3):
        job.end_step()
    job.await_steps(3)
    assert job.snapshot(3).random_at_forward is None
    wait_for(lambda: not job.snapshots._is_busy, 20, "the snapshot to be written")
    job.end_step()
    job.await_steps(3, 4)


def test_what_is_only_right_at_the_next_step_is_not_copied_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A schedule is stepped after the optimizer, and nothing tells that the next step begins."""
    model = torch.nn.Linear(2, 2)
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 1)
    job = Job(tmp_path, 1, model=model, schedule=schedule)
    job.snapshots.reached(job.objects)
    job.model.forward(torch.ones(1, 2))
    job.end_step()
    job.model.forward(torch.ones(1, 2))
    job.end_step()
    assert capfd.readouterr().err.endswith(
        "no registered module is called as such, so nothing shows when schedule is as the next step finds it: call "
        "prismdbg.step(n) at the top of the loop\n"
    )
    assert states_of(job.home) == [] and job.notes[-1][0] == "no_state"


def test_an_evaluation_between_two_steps_is_not_the_next_step(tmp_path: Path) -> None:
    """Nothing shows whether it stands at the end of the loop or at its top: a replay begins at the top."""
    job = Job(tmp_path, 2)
    job.snapshots.reached(job.objects)
    job.steps(2)
    job.evaluate(collectives=1)
    job.steps(1)
    assert states_of(job.home) == []
    job.begin_step()
    job.await_steps(3)
    assert job.snapshot(3).past_records == 34
    job.end_step()
    job.begin_step()
    job.await_steps(3, 4)


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("is_registered", [False, True])
def test_an_evaluation_is_seen_where_ddp_is_called_and_only_its_module_told(
    tmp_path: Path, group: None, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    monkeypatch.setattr(state_snapshots.ddp_buckets, "order_of", lambda module: ())  # as if a first step had ended
    model = torch.nn.Linear(2, 2)
    ddp: Any = DistributedDataParallel(model)
    job = Job(tmp_path, 1, model=ddp if is_registered else model)
    job.model = ddp
    job.snapshots.reached(job.objects)
    job.steps(1)
    model.eval()
    with torch.no_grad():
        ddp(torch.ones(1, 2))
    model.train()
    job.steps(1)
    assert states_of(job.home) == []
    job.begin_step()
    job.await_steps(2)


def test_an_evaluation_after_every_step_needs_a_mark(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    for _ in range(3):
        job.steps(1)
        job.evaluate()
    assert "evaluates between every two steps: call prismdbg.step(n) at the top of the loop\n" in capfd.readouterr().err
    assert states_of(job.home) == []


@pytest.mark.parametrize(
    ("by_hand", "told"),
    [
        (False, "before the forward pass that begins a step: call prismdbg.step(n) at the top of the loop\n"),
        (True, "at each prismdbg.step(n): call reshard() before it\n"),
    ],
)
def test_parameters_that_are_gathered_stay_so(
    by_hand: bool,
    told: str,
    tmp_path: Path,
    group: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The module's next forward pass would gather them again, and so would that of no other rank."""
    monkeypatch.setattr(COUNTER, "by_hand", by_hand)
    model = fully_shard(torch.nn.Linear(2, 2))
    job = Job(tmp_path, 1, model=model, loader=Loader())
    job.model = model
    job.snapshots.reached(job.objects)
    for _ in range(3):
        model.unshard()
        job.end_step()
        job.begin_step()
        assert not isinstance(model.weight, DTensor)
    assert f"parameters of fully_shard are gathered {told}" in capfd.readouterr().err
    assert states_of(job.home) == []
    model.reshard()
    assert isinstance(model.weight, DTensor)


def test_between_two_marks_a_program_may_evaluate_and_call_what_it_likes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Linear(2, 2)
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 1)
    job = Job(tmp_path, 2, model=model, schedule=schedule)
    job.model = model
    job.snapshots.reached(job.objects)
    for called in (job.evaluate, lambda: model.forward(torch.ones(1, 2)), job.evaluate):
        for _ in range(2):
            job.end_step(StepSource.MANUAL)
            called()
            wait_for(lambda: not job.snapshots._is_busy, 20, "the snapshot to be written")
    job.await_steps(5, 6)
    assert "prismdbg.step" not in capfd.readouterr().err


@pytest.mark.parametrize("since", [0, 1])
def test_a_model_may_be_trained_in_evaluation_mode(tmp_path: Path, since: int) -> None:
    """Or in the other one from some step on."""
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    for step in range(3):
        job.model.train(step < since)
        job.begin_step()
        wait_for(lambda: not job.snapshots._is_busy, 20, "the snapshot to be written")
        job.end_step()
    job.begin_step()
    job.await_steps(2, 3)
    assert job.snapshot(3).random_at_forward is not None


def test_a_second_optimizer_that_steps_after_the_forward_pass_needs_a_mark(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a generator's: the step ends with the discriminator's optimizer, and goes on with a forward pass."""
    critic, model = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    first, second = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (critic, model))
    job = Job(tmp_path, 1, critic=critic, model=model, first=first, second=second)
    job.model = model
    monkeypatch.setattr(state_snapshots.COUNTER, "optimizer", weakref.ref(first))
    job.snapshots.reached(job.objects)
    for _ in range(3):
        critic(torch.ones(1, 2))
        first.step()
        job.end_step()
        model(torch.ones(1, 2))
        second.step()
    said = capfd.readouterr().err
    assert "optimizer second steps after the next forward pass: call prismdbg.step(n) at the top of the loop" in said
    assert states_of(job.home) == []


def job_of_two_optimizers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Job, torch.optim.Optimizer, torch.optim.Optimizer]:
    """Of one model, each of a part of it; the first one's steps are counted. The restore point is reached."""
    model = torch.nn.Linear(2, 2)
    first, second = (torch.optim.SGD([each], lr=0.1) for each in model.parameters())
    job = Job(folder, 2, model=model, first=first, second=second)
    job.model = model
    monkeypatch.setattr(state_snapshots.COUNTER, "optimizer", weakref.ref(first))
    job.snapshots.reached(job.objects)
    return job, first, second


def test_a_second_optimizer_may_step_before_the_forward_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, first, second = job_of_two_optimizers(tmp_path, monkeypatch)
    for _ in range(3):
        job.begin_step()
        first.step()
        job.end_step()
        second.step()
    job.await_steps(2)


def test_a_second_optimizer_may_step_before_the_one_that_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the forward pass at which the snapshot was copied, but in the same step."""
    job, first, second = job_of_two_optimizers(tmp_path, monkeypatch)
    for _ in range(5):
        job.begin_step()
        second.step()
        first.step()
        job.end_step()
        wait_for(lambda: not job.snapshots._is_busy, 20, "the snapshot to be written")
    assert states_of(job.home) == [2, 4] and [kind for kind, _ in job.notes] == ["state_snapshot"] * 2
    job.steps(1)
    job.begin_step()
    second.step()
    job.snapshots.give_up("a reason")
    assert not job.model._forward_pre_hooks


def test_where_no_module_is_called_a_second_optimizer_after_the_step_needs_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Linear(2, 2)
    first, second = (torch.optim.SGD([each], lr=0.1) for each in model.parameters())
    job = Job(tmp_path, 1, model=model, first=first, second=second)
    monkeypatch.setattr(state_snapshots.COUNTER, "optimizer", weakref.ref(first))
    job.snapshots.reached(job.objects)
    for _ in range(3):
        first.step()
        job.end_step()
        second.step()
    assert "optimizer second steps after the next forward pass" in capfd.readouterr().err
    assert states_of(job.home) == []


def test_a_first_copy_in_inference_mode_is_no_harm_to_later_ones(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    job.steps(1)
    with torch.inference_mode():
        job.begin_step()
    job.await_steps(1)
    job.end_step()
    job.begin_step()
    job.await_steps(1, 2)


def test_a_program_may_pickle_and_copy_its_modules_while_a_snapshot_waits(tmp_path: Path) -> None:
    """Where prismdbg is not there, it reads them; a copy's forward pass is not the model's."""
    job = Job(tmp_path, 3)
    job.snapshots.reached(job.objects)
    job.steps(3)
    pickled, copied = pickle.dumps(job.model), copy.deepcopy(job.model)
    assert not [word for _, word, _ in pickletools.genops(pickled) if "prismdbg" in str(word)]
    ones = torch.ones(1, 2)
    assert torch.equal(copied(ones), pickle.loads(pickled)(ones)) and states_of(job.home) == []  # noqa: S301
    job.begin_step()
    job.await_steps(3)
    assert torch.equal(copied(ones), job.model(ones))
    assert pickle.dumps(copied)


def test_a_shallow_copy_s_forward_pass_is_not_the_model_s(tmp_path: Path) -> None:
    """It has the model's own hooks, as have the replicas of DataParallel."""
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    job.steps(1)
    clone, ones = copy.copy(job.model), torch.ones(1, 2)
    clone(ones)
    assert states_of(job.home) == [] and job.notes == []
    job.begin_step()
    job.await_steps(1)


def test_what_fails_in_a_forward_pass_is_not_the_program_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    job.steps(1)
    pending = job.snapshots._pending
    assert pending is not None

    def broken() -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(pending, "cancel", broken)
    job.begin_step()
    assert job.notes == [("no_state", {"text": "RuntimeError('not today')"})]


class Fresh:
    """Gives a tensor that nobody else has."""

    def __init__(self) -> None:
        self.given: list[weakref.ref[Any]] = []

    def state_dict(self) -> dict[str, torch.Tensor]:
        memory = np.ones(9)
        self.given.append(weakref.ref(memory))
        return {"tensor": torch.from_numpy(memory)}

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("in no recording")


def test_a_snapshot_frees_its_memory_where_the_program_collects_no_garbage(tmp_path: Path) -> None:
    """As torchtitan and Megatron, which do so every so many steps."""
    fresh = Fresh()
    job = Job(tmp_path, 1, model=torch.nn.Linear(2, 2), fresh=fresh)
    job.model = job.objects["model"]
    job.snapshots.reached(job.objects)
    gc.disable()
    try:
        job.steps(1)
        job.begin_step()
        job.await_steps(1)
        assert [memory() is None for memory in fresh.given] == [True, True], "at the restore point, and of the snapshot"
    finally:
        gc.enable()


@pytest.mark.parametrize("is_part", [False, True], ids=["all of it", "a part"])
def test_a_module_that_is_compiled_while_a_snapshot_waits_for_it_stays_one_graph(tmp_path: Path, is_part: bool) -> None:
    """Where nothing tells that its forward pass begins, the next step is the boundary."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
    call = torch.compile(net, fullgraph=True, backend="eager")
    job = Job(tmp_path, 1, model=net[0] if is_part else net)
    job.snapshots.reached(job.objects)
    call(torch.ones(1, 2))
    job.end_step()
    net.eval()
    call(torch.ones(1, 2))
    job.end_step()
    job.await_steps(2)


def test_a_step_that_is_marked_by_hand_is_the_boundary(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    job.end_step(StepSource.MANUAL)
    with torch.no_grad():
        job.model.weight.fill_(7.0)
    job.begin_step()
    job.await_steps(1)
    assert job.snapshot(1).by_hand
    assert b"\x00\x00\xe0\x40" * 4 not in (job.home / "1" / "tensors.safetensors").read_bytes()


def test_two_are_kept_and_payloads_since_the_older_one(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.snapshots.reached(job.objects)
    for step in (2, 4, 6):
        job.steps(2)
        job.begin_step()
        kept = [s for s in (2, 4, 6) if step - 2 <= s <= step]
        job.await_steps(*kept)
        wait_for(lambda kept=kept: job.recorder.kept_from[-1:] == kept[:1], 20, "payloads to be kept")  # type: ignore[misc]
        wait_for(lambda: not job.snapshots._is_busy, 20, "the snapshot to be written")
    assert job.recorder.kept_from == [2, 2, 4]
    assert [kind for kind, _ in job.notes] == ["state_snapshot"] * 3


@pytest.mark.parametrize(
    ("window_bytes", "received", "kept"),
    [
        (1 << 30, 0, "4.0 MiB"),
        (1 << 30, 6 << 20, "6.0 MiB"),
        (1 << 20, 1 << 30, "257.0 MiB"),
        (0, 1 << 30, "1024.0 MiB"),
    ],
)
def test_what_snapshots_take_is_said_at_the_restore_point(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], window_bytes: int, received: int, kept: str
) -> None:
    """Rank 0 prints it, to which DDP sends nothing; the others received the model before."""
    job = Job(tmp_path, 3)
    job.recording.config.window_bytes = window_bytes
    stats = job.recorder.stats()
    job.recorder.stats = lambda: {**stats, "payload_bytes": received}  # type: ignore[method-assign]
    job.snapshots.reached({"model": torch.nn.Linear(1 << 10, 1 << 10, bias=False)})
    said = capfd.readouterr().err
    assert said.startswith(
        "prismdbg: a state snapshot every 3 steps: up to about 12.0 MiB per rank, 2 on disk and one in memory, and on "
        f"disk up to about {kept} that the rank received before; copying a snapshot takes about "
    )
    assert said.endswith(" ms on this machine\n")


def test_how_long_copying_from_a_device_takes_is_not_predicted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, 3)
    job.snapshots.reached({"model": torch.nn.Linear(2, 2, device="meta")})  # a fake: stands for a GPU
    assert capfd.readouterr().err.endswith(
        " that the rank received before; the first snapshot shows how long it takes to copy it from the GPU\n"
    )


class Place:
    def state_dict(self) -> Any:
        return {"epoch": 0}

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("in no recording")


class Opaque(Place):
    def state_dict(self) -> Any:
        return {"cache": {"entries": [object()]}}


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (Opaque(), "place.cache.entries.0 is of type builtins.object, which cannot be written as plain data"),
        ("text", "place has no state_dict and load_state_dict"),
    ],
)
def test_what_cannot_be_written_ends_the_snapshots_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], thing: Any, says: str
) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached({"model": job.model, "place": thing})
    job.steps(3)
    assert capfd.readouterr().err == f"prismdbg: no further state snapshots of rank 0: {says}\n"
    assert job.notes == [("no_state", {"text": says})] and job.recorder.windows == [(False, 0, 9)]
    assert not job.home.exists()


class Gathered(Place):
    """Issues a collective in its state_dict from the given call on. The program may handle the exception."""

    def __init__(self, recorder: Recorder, *, since: int, is_handled: bool) -> None:
        self.recorder, self.since, self.is_handled = recorder, since, is_handled

    def state_dict(self) -> Any:
        self.since -= 1
        if self.since < 0:
            assert self.recorder.refuses
            self.recorder.refused += 1
            if not self.is_handled:
                raise RuntimeError("refused")
        return super().state_dict()


@pytest.mark.parametrize("is_handled", [False, True])
@pytest.mark.parametrize("since", [0, 1])
def test_a_state_that_is_gathered_from_other_ranks_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], since: int, is_handled: bool
) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached({"place": Gathered(job.recorder, since=since, is_handled=is_handled)})
    job.steps(2)
    assert "state_dict() of a registered object issues collectives" in capfd.readouterr().err
    assert not job.recorder.refuses and states_of(job.home) == []


class BeginsWhenAsked(Loader):
    """As torchdata's: where it was not iterated over, it makes its iterator, in the order of now and with a seed."""

    def state_dict(self) -> dict[str, int]:
        self.taken += int(torch.randint(9, (1,))) + 1
        return super().state_dict()


def test_a_loader_is_asked_nothing_before_its_first_epoch(tmp_path: Path) -> None:
    loader = BeginsWhenAsked()
    job = Job(tmp_path, 2, model=torch.nn.Linear(2, 2), loader=loader)
    drawn = torch.get_rng_state()
    job.snapshots.reached(job.objects)
    assert not loader.taken
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not job.notes


def of_torchdata() -> list[Any]:
    """Asked before it is iterated over, the first draws a seed, the second a sample."""
    return [StatefulDataLoader(SAMPLES, batch_size=None), NodesLoader(IterableWrapper(SAMPLES))]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("kind", [0, 1])
def test_a_snapshot_leaves_a_loader_alone_that_has_not_begun(tmp_path: Path, kind: int) -> None:
    """One for validation is iterated over long after the first snapshots."""
    loader, model = of_torchdata()[kind], torch.nn.Linear(2, 2)
    job = Job(tmp_path, 2, model=model, loader=loader)
    job.model, as_made, drawn = model, dict(vars(loader)), torch.get_rng_state()
    job.snapshots.reached(job.objects)
    job.steps(3)
    job.begin_step()
    job.await_steps(2)
    assert vars(loader) == as_made and torch.equal(torch.get_rng_state(), drawn)
    assert job.snapshot(2).objects["loader"] is None


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_loader_that_has_begun_is_asked_also_where_it_did_before_the_restore_point(kind: int, loaded: bool) -> None:
    """And one with a loaded state says this, without an iterator."""
    loader, other = of_torchdata()[kind], of_torchdata()[kind]
    assert list(islice(loader, 3)) == SAMPLES[:3]
    if loaded:
        again = of_torchdata()[kind]
        again.load_state_dict(state_of(loader))
        as_loaded, loader = dict(vars(again)), again
        other.load_state_dict(state_of(loader))
        assert vars(loader) == as_loaded
    else:
        other.load_state_dict(state_of(loader))
    assert list(other) == SAMPLES[3:]


def test_a_program_without_a_restore_point_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = Job(tmp_path, 1)
    job.steps(3)
    assert capfd.readouterr().err.count("did not call prismdbg.restore_point before its first step") == 1
    assert job.recorder.windows == [(False, 0, 9)], "payloads are kept as without"
    assert not job.recorder.keeps_small


@pytest.mark.parametrize(
    ("not_kept", "noted", "said"),
    [
        ((0, 0), [], []),
        (
            (3 << 20, 0),
            ["3.0 MiB that rank 0 received before its restore point are not kept (--window-bytes 9 B); " + SYNTHESIZED],
            [],
        ),
        ((0, 4096), [CROWDED], [CROWDED]),
    ],
)
def test_what_the_prologue_lacks_is_known_at_the_restore_point(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], not_kept: tuple[int, int], noted: list[str], said: list[str]
) -> None:
    """Small payloads are kept until then, and their files have second names before they are let go."""
    job = Job(tmp_path, 1)
    job.recorder.not_kept = not_kept
    (job.recording.folder / "payload.00000.seg").touch()
    let_go = job.recorder.keep_small

    def keep_small(each_bytes: int, total_bytes: int) -> tuple[int, int]:
        assert [path.name for path in (job.home / "prologue").iterdir()] == ["payload.00000.seg"]
        return let_go(each_bytes, total_bytes)

    job.recorder.keep_small = keep_small  # type: ignore[method-assign]
    job.snapshots.reached(job.objects)
    assert not job.recorder.keeps_small
    assert job.notes == [("not_in_prologue", {"text": text}) for text in noted]
    told = capfd.readouterr().err
    assert all(f"prismdbg: {text}\n" in told for text in said) and told.count("\n") == len(said) + 1


def test_a_snapshot_that_the_disk_does_not_take_is_left_out_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The next one is tried at its own time. What refuses them is said once, however often it does."""
    job = Job(tmp_path, 2)
    job.snapshots.reached(job.objects)
    job.steps(2)
    job.begin_step()
    job.await_steps(2)
    write, tried = job.snapshots._staging.write, list[Path]()

    def full(path: Path) -> None:
        tried.append(path)
        path.write_text("as much as there was room for")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job.snapshots._staging.write = full  # type: ignore[method-assign]
    for count in (1, 2):
        job.steps(2)
        job.begin_step()
        wait_for(lambda count=count: len(tried) == count and not job.snapshots._is_busy, 20, "a try")  # type: ignore[misc]
    assert _names(job) == {"2", "prologue"}, "nothing half-written takes what room there is"
    job.snapshots._staging.write = write  # type: ignore[method-assign]
    job.steps(2)
    job.begin_step()
    job.await_steps(2, 8)
    said = capfd.readouterr().err
    assert said.count("No space left on device; the next one is tried after 2 steps") == 1
    assert "no state snapshot of rank 0 at step 4" in said
    assert [kind for kind, _ in job.notes] == ["state_snapshot", *["state_skipped"] * 2, "state_snapshot"]
    assert not job.recorder.windows, "payloads are kept as before"


@pytest.mark.parametrize(
    ("module", "limit", "says"),
    [
        ("state_snapshot", "MAX_JSON_BYTES", "the plain values of the registered objects take "),
        (
            "safetensors",
            "MAX_HEADER_BYTES",
            "the names and shapes of the tensors take 136 B, more than 64 B",
        ),
    ],
)
def test_a_snapshot_that_nobody_could_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, limit: str, says: str
) -> None:
    job = Job(tmp_path, 1)
    monkeypatch.setattr(f"prismdbg.capsule.{module}.{limit}", 64)
    job.snapshots.reached(job.objects)
    job.steps(1)
    job.begin_step()
    wait_for(lambda: job.notes, 20, "the snapshots to end")
    ((kind, data),) = job.notes
    assert kind == "no_state" and says in data["text"]
    assert _names(job) == {"prologue"}


def test_a_stderr_that_takes_nothing_reaches_neither_the_program_nor_the_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they cost is said when they begin, and what ends them, each from a call of the program's."""
    job = Job(tmp_path, 1)
    monkeypatch.setattr(sys, "stderr", Full())
    job.snapshots.reached(job.objects)
    job.steps(1)
    job.begin_step()
    job.await_steps(1)
    job.model.state_dict = None  # type: ignore[method-assign, assignment]
    job.steps(2)
    assert [kind for kind, _ in job.notes] == ["state_snapshot", "no_state"]


def test_a_recorder_that_fails_where_snapshots_end_reaches_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_handler", "_recorded", "_give_up", "_step", "_is_reached"):
        monkeypatch.setattr(restore_point, name, getattr(restore_point, name))
    job = Job(tmp_path, 1)

    def broken(*_: Any) -> None:
        raise RuntimeError("not today")

    job.recorder.window = broken  # type: ignore[method-assign]
    restore_point.answer_with(lambda _: None)
    job.snapshots.give_up("a reason")
    assert not restore_point.is_awaited(), "no adapter says that it registers"
    job.snapshots.reached({})
    assert job.notes == [("no_state", {"text": "a reason"})]


def test_where_snapshots_end_the_program_s_objects_are_free(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    job.steps(1)  # one waits for the next forward pass
    job.snapshots.give_up("a reason")
    model = weakref.ref(job.model)
    job.objects.clear()
    del job.model
    gc.collect()
    assert model() is None


def _names(job: Job) -> set[str]:
    return {path.name for path in job.home.iterdir()}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_no_snapshot_is_dropped_while_an_incident_may_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Neither are payloads, and none is taken in its place. `meanwhile`: it is seen while one is written."""
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    for step in (1, 2):
        job.steps(1)
        job.begin_step()
        job.await_steps(*range(1, step + 1))
    file, write = hold_file(job.home.parent, ""), job.snapshots._staging.write
    kept_from, written = list(job.recorder.kept_from), []
    if when == "before":
        hold(file)

    def and_then_it_is_held(path: Path) -> None:
        written.append(path)
        write(path)
        hold(file)

    copy, copied, asked_by = job.snapshots._staging.copy, [], set[str]()
    is_on = HoldWatch.is_on

    def on(watch: HoldWatch) -> bool:
        asked_by.add(threading.current_thread().name)
        return is_on(watch)

    def copies(tensors: Any) -> None:
        copied.append(tensors)
        copy(tensors)

    with monkeypatch.context() as patched:
        patched.setattr(job.snapshots._staging, "write", and_then_it_is_held)
        patched.setattr(job.snapshots._staging, "copy", copies)
        patched.setattr(HoldWatch, "is_on", on)
        for _ in range(2):
            job.end_step()
            job.begin_step()
            wait_for(lambda: asked_by and _names(job) == {"1", "2", "prologue"}, 20, "the snapshot to be discarded")
    assert len(written) == (1 if when == "meanwhile" else 0), "what would be discarded is not written"
    assert len(copied) == 1, "nor copied again as long as it is held"
    assert asked_by == {"prismdbg-state"}, "a file server may not answer: the program's thread does not ask"
    assert job.recorder.kept_from == kept_from and not [kind for kind, _ in job.notes if kind == "no_state"]
    release(file)
    wait_for(lambda: not job.snapshots._is_busy, 20, "the release to be seen")
    job.end_step()
    job.begin_step()
    job.await_steps(2, 5)
    wait_for(lambda: job.recorder.kept_from[-1] == 2, 20, "what is older to be let go")


@pytest.mark.parametrize("before", [0, 1])
def test_a_snapshot_that_drops_none_is_kept_while_an_incident_may_need_one(tmp_path: Path, before: int) -> None:
    """It may be the only one from before the incident, still being written when that is seen."""
    job = Job(tmp_path, 1)
    job.snapshots.reached(job.objects)
    for step in range(before):
        job.steps(1)
        job.begin_step()
        job.await_steps(*range(1, step + 2))
    hold(hold_file(job.home.parent, ""))
    job.steps(1)
    job.begin_step()
    job.await_steps(*range(1, before + 2))


def test_a_discarded_snapshot_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, is_on = list[bool](), HoldWatch.is_on
    monkeypatch.setattr(HoldWatch, "is_on", lambda watch: seen.append(is_on(watch)) or seen[-1])
    job = Job(tmp_path, 5)
    job.snapshots.reached(job.objects)
    for steps in ((5,), (5, 10)):
        job.steps(5)
        job.begin_step()
        job.await_steps(*steps)
    file = hold_file(job.home.parent, "")
    hold(file)
    job.steps(5)
    job.begin_step()
    job.steps(1)
    wait_for(lambda: any(seen), 20, "the hold to be seen")
    release(file)
    wait_for(lambda: not job.snapshots._is_busy, 20, "the release to be seen")
    assert states_of(job.home) == [5, 10]
    job.steps(1)
    job.begin_step()
    job.await_steps(10, 17)
