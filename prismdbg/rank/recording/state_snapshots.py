"""`record --state-every`: registered training state, copied at a step boundary and written in the background.

Where a step ends is not told by the optimizer alone: schedulers and scalers come after it, and the next batch is drawn
before the next forward pass. So random generators and loaders are read right after the optimizer's step, everything
else at the next forward pass of a registered module, or of DDP around one; or all of it where the program marks its
steps itself. A forward pass in another mode than that of the step is one of an evaluation: whether a replay, which
begins at the top of the loop, comes to it again is not known, so the snapshot is taken a step later.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from prismdbg.capsule import state_snapshot as files
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.log.notes import NO_STATE, NOT_IN_PROLOGUE
from prismdbg.capsule.state_snapshot import StateSnapshot
from prismdbg.errors import PrismError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.isolation import ours
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording import ddp_buckets, random_state, restore_point
from prismdbg.rank.recording.async_saves import AsyncSaves
from prismdbg.rank.recording.forward_hooks import ForwardHooks
from prismdbg.rank.recording.fsdp1 import ShardedModules
from prismdbg.rank.recording.fsdp2 import Gathered, kept_gathered
from prismdbg.rank.recording.loader_state import state_of
from prismdbg.rank.recording.plain_state import Packed, Packer
from prismdbg.rank.recording.recorder import NO_STEP, Recorder
from prismdbg.rank.recording.restore_point import Registered, unfit
from prismdbg.rank.recording.state_staging import Staging
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.settings.file_system import bounded, is_local
from prismdbg.settings.state_folders import ALL_SMALL_BYTES, KEPT, STATES, states_of, unfinished
from prismdbg.settings.state_hold import HoldWatch, hold_file

if TYPE_CHECKING:
    from prismdbg.rank.recording.recorded_rank import Recording

_TRIED_BYTES = 8 << 20
_HOLD_LOOK_S = 0.5
_ADAM = 3  # the parameters, and two more of each
_MARK = "call prismdbg.step(n) at the top of the loop"
_GATHERED = f"parameters of fully_shard are gathered before the forward pass that begins a step: {_MARK}"
_GATHERED_AT_MARK = "parameters of fully_shard are gathered at each prismdbg.step(n): call reshard() before it"


class StateSnapshots:
    """Of one rank. Nothing here ever raises into the program: what fails ends the snapshots, and is said once. A
    snapshot that a file system refuses is left out alone, for a disk may be full for a moment."""

    def __init__(self, recording: Recording, every: int) -> None:
        self._recording = recording
        self._every = every
        self._objects: Registered = {}
        self._ddp_modules: list[Any] = []
        self._ended = ""
        self._taken_at = self._whole_at = (
            0  # steps: of the last one that was begun, and of the last one that was copied
        )
        self._prologue_records = 0
        self._staging = Staging()
        self._writer: threading.Thread | None = None
        self._pending: _Pending | None = None
        self._told_cost = False
        self._told_refusals: set[int | None] = set()  # by errno: each is said once
        self._unwritten: threading.Thread | None = None
        self._at_forward = True
        self._is_late = False  # for an evaluation, or for gathered parameters
        self._doubted = ForwardHooks([], lambda module: None)
        self._sharded = ShardedModules()
        self._saves = AsyncSaves()
        self._told_save = False
        config = recording.config
        self._hold = HoldWatch(hold_file(Path(config.home) / STATES, config.node))

    def watch(self) -> None:
        """Before the program makes its modules."""
        self._sharded.watch(self.give_up)
        self._saves.watch()
        ddp_buckets.watch()

    def reached(self, objects: Registered) -> None:
        """The program's restore point: from here on its state is registered."""
        self._guarded(lambda: self._register(objects))

    def give_up(self, why: str) -> None:
        """Nothing will be registered."""
        self._guarded(lambda: self._end(why))

    def on_step(self, step: int, source: StepSource) -> None:
        """Listens to the step counter, after the recording."""
        if not self._ended and self._recording.is_open and not self._recording.lost:
            self._guarded(lambda: self._at_step(step, source))

    def _register(self, objects: Registered) -> None:
        if self._ended or not self._recording.ensure_open():
            return
        if self._objects:
            self._say("prismdbg.restore_point was called again; the first call counts")
            return
        if problem := unfit(objects):
            raise UsageError(problem)
        modules = ddp_buckets.modules_of(objects.values())
        if any(module.static_graph for module in modules):
            raise UsageError(
                "a DDP module has static_graph: its first step differs from later ones",
                hint="leave static_graph out, or record with --checkpoint-every",
            )
        # One whose state_dict is refused a collective could not train any more, and any registered object may call it.
        if self._sharded.any():
            raise UsageError(
                "the program uses FullyShardedDataParallel, whose state_dict() issues collectives",
                hint="use fully_shard, or record with --checkpoint-every",
            )
        packer = Packer()
        with suppress(Gathered), _apart(self._recording.recorder):  # gathered: the first snapshot asks
            for name, thing in objects.items():
                if not _is_position(thing):  # a loader may make its iterator for it, and give that to the program
                    packer.pack(thing.state_dict(), name)
        self._objects, self._ddp_modules = dict(objects), modules
        if len(self._optimizers()) > 1:
            register_optimizer_step_post_hook(self._stepped)
        self._prologue_records = int(self._recording.recorder.stats()["events"])
        keep = partial(keep_prologue, self._folder, self._home / files.PROLOGUE)
        keep() if is_local(self._folder) else bounded(keep)  # a file server may not answer
        self._note_not_kept(*self._recording.recorder.keep_small(0, 0))
        with ours():
            self._say_budget(list(packer.tensors.values()))

    def _note_not_kept(self, not_kept_bytes: int, crowded_bytes: int) -> None:
        """Of what the rank received so far; the prologue has the rest."""
        rank, most = self._recording.rank, size(self._recording.config.window_bytes)
        if not_kept_bytes:
            text = f"{size(not_kept_bytes)} that rank {rank} received before its restore point are not kept"
            self._recording.note(NOT_IN_PROLOGUE, text=f"{text} (--window-bytes {most}); a replay synthesizes them")
        if crowded_bytes:
            text = f"rank {rank} received more than {size(ALL_SMALL_BYTES)} in small payloads before its restore point"
            text += (
                f"; {size(crowded_bytes)} of them may be dropped (--window-bytes {most}), and a replay synthesizes them"
            )
            self._recording.note(NOT_IN_PROLOGUE, text=text)
            self._say(text, always=True)

    def _say_budget(self, tensors: Sequence[torch.Tensor]) -> None:
        """Only rank 0 prints this. DDP sends it nothing; the others received the model before the restore point."""
        parameters = {id(p): p for thing in self._objects.values() for p in _parameters_of(thing)}
        model_bytes = sum(_size_bytes(p) for p in parameters.values())
        most = max(sum(_size_bytes(t) for t in tensors), _ADAM * model_bytes)
        received = max(model_bytes, int(self._recording.recorder.stats().get("payload_bytes", 0)))
        window_bytes = self._recording.config.window_bytes
        before = min(received, window_bytes + ALL_SMALL_BYTES) if window_bytes else received
        on_host = all(tensor.device.type == "cpu" for tensor in tensors)
        self._say(
            f"a state snapshot every {self._every} steps: up to about {_mib(most)} per rank, {KEPT} on disk and one "
            f"in memory, and on disk up to about {_mib(before)} that the rank received before; "
            + (_copy_time(most) if on_host else "the first snapshot shows how long it takes to copy it from the GPU")
        )

    def _at_step(self, step: int, source: StepSource) -> None:
        if not self._objects:
            raise UsageError(
                "the program did not call prismdbg.restore_point before its first step",
                hint="add the call before the training loop; see docs/recording.md",
            )
        if self._unwritten is not None:
            self._start_writing()
        if self._pending is not None:  # a whole step went by
            self._missed(self._pending)
        if step // self._every <= self._taken_at // self._every or self._is_busy or self._awaits_save():
            return
        orders = [ddp_buckets.order_of(module) for module in self._ddp_modules]
        buckets = [order for order in orders if order is not None]
        if len(buckets) < len(orders):  # in a later step
            return
        self._taken_at = step
        by_hand = source is StepSource.MANUAL or COUNTER.by_hand  # after a step that a scaler skipped, source says that
        pending = _Pending(self._objects, self._modules(), buckets, self._recording.recorder, by_hand=by_hand)
        if pending.by_hand:
            self._copy(pending)
        if pending.modules and self._at_forward:
            self._pending = pending
            pending.at_forward(lambda: self._finish(pending), self._guarded)
        else:
            self._finish(pending)

    def _missed(self, pending: _Pending) -> None:
        """No registered module was called as such in a whole step, or all are trained in another mode from now on."""
        pending.cancel()
        self._pending, self._taken_at = None, 0
        if not pending.evaluated:
            self._at_forward = False
            if not pending.by_hand:
                self._say_not_called()

    def _say_not_called(self) -> None:
        if later := ", ".join(name for name, thing in self._objects.items() if _changes_after_the_optimizer(thing)):
            raise UsageError(
                f"no registered module is called as such, so nothing shows when {later} is as the next step finds it: "
                f"{_MARK}"
            )
        self._say("no registered module is called as such: state snapshots are taken where the optimizer's step ends")

    def _modules(self) -> list[torch.nn.Module]:
        """Those whose forward pass may begin a step: DDP sends its buffers before it calls what it wraps."""
        registered = [thing for thing in self._objects.values() if isinstance(thing, torch.nn.Module)]
        return [*registered, *self._ddp_modules]

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: thing for name, thing in self._objects.items() if isinstance(thing, torch.optim.Optimizer)}

    @not_compiled
    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Of several optimizers one. After the forward pass at which the snapshot was copied it may belong to the next
        step, which the first one ends, or still to the step before."""
        if self._unwritten is None:
            return
        first = COUNTER.optimizer() if COUNTER.optimizer is not None else None
        names = [name for name, each in self._optimizers().items() if each is optimizer and each is not first]
        if names and isinstance(first, torch.optim.Optimizer):
            self._guarded(lambda: self._doubt(names[0]))

    def _doubt(self, name: str) -> None:
        """The step before goes on if there is another forward pass until the first optimizer steps, as in a GAN."""
        modules = self._modules() if self._at_forward else []
        why = f"optimizer {name} steps after the next forward pass: {_MARK}"
        self._doubted.remove()
        self._doubted = ForwardHooks(modules, lambda _: self.give_up(why))
        if not modules:  # nothing would show it
            self.give_up(why)

    @property
    def _is_busy(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def _awaits_save(self) -> bool:
        """Whether a snapshot must be taken in a later step, for what a save still issues is in no replay."""
        awaits = self._saves.any_runs()
        if awaits and not self._told_save:
            self._told_save = True
            self._say("async_save is writing a training checkpoint: the state snapshot is taken when it has ended")
        return awaits

    def _copy(self, pending: _Pending) -> None:
        """The snapshot's place in the log is here."""
        began = time.monotonic_ns()
        stats = self._recording.recorder.stats()
        pending.moment = Moment(int(stats["step"]), int(stats["collective"]))
        pending.past_records = int(stats["events"])
        pending.sequences = tuple(self._recording.recorder.sequences())
        with _apart(self._recording.recorder), torch.no_grad():
            pending.pack()
            self._staging.copy(pending.packer.tensors)
        pending.copied_ns = time.monotonic_ns() - began

    def _finish(self, pending: _Pending) -> None:
        self._pending = None
        pending.stop_watching()
        if self._ended:
            return
        if pending.began_again:  # of two epochs: where the loader stands and what the program counts do not agree
            self._take_later()
            return
        if pending.moment is None and self._awaits_save():  # it was begun since the optimizer's step
            self._take_later()
            return
        if pending.evaluated:
            self._postpone(f"the program evaluates between every two steps: {_MARK}")
            return
        if pending.modules and self._at_forward:
            pending.random_at_forward = random_state.read()
        if pending.moment is None:
            self._copy(pending)
        self._is_late = False
        self._whole_at = self._taken_at
        snapshot = pending.described(self._prologue_records)
        write = lambda: self._guarded(lambda: self._write_or_skip(snapshot, pending.copied_ns))  # noqa: E731
        self._unwritten = threading.Thread(target=write, name="prismdbg-state", daemon=True)
        if pending.by_hand or len(self._optimizers()) < 2:  # else when the next step has shown that it may be
            self._start_writing()

    def _start_writing(self) -> None:
        assert self._unwritten is not None, "there is one"
        self._doubted.remove()
        self._writer, self._unwritten = self._unwritten, None
        self._writer.start()

    def _postpone(self, why: str) -> None:
        """Once: a step later it may be otherwise."""
        if self._is_late:
            raise UsageError(why)
        self._is_late = True
        self._take_later()

    def _take_later(self) -> None:
        """In the next step."""
        self._taken_at = self._taken_at // self._every * self._every - 1

    def _write_or_skip(self, snapshot: StateSnapshot, copied_ns: int) -> None:
        """The next one is written at its own time, however often this fails."""
        try:
            self._write(snapshot, copied_ns)
        except OSError as error:
            self._recording.note("state_skipped", step=snapshot.step, text=str(error))
            if error.errno not in self._told_refusals:
                self._told_refusals.add(error.errno)
                self._say(
                    f"no state snapshot of rank {self._recording.rank} at step {snapshot.step}: {error}; "
                    f"the next one is tried after {counted(self._every, 'step')}",
                    always=True,
                )

    def _write(self, snapshot: StateSnapshot, copied_ns: int) -> None:
        """In a thread of ours: whole or not there. Not while an incident may need those that it would drop."""
        began, home = time.monotonic_ns(), self._home
        if self._is_held():
            self._discarded()
            return
        partial = unfinished(home, snapshot.step)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            self._write_to(partial, snapshot)
            is_held = self._is_held()  # since it was begun
            if not is_held:
                partial.rename(home / str(snapshot.step))
        finally:  # above all on a disk that is full
            shutil.rmtree(partial, ignore_errors=True)
        if is_held:
            self._discarded()
            return
        steps = states_of(home)
        for step in steps[:-KEPT]:
            with suppress(OSError):  # the new one is there; this one goes with the next
                dropped = (home / str(step)).rename(unfinished(home, step))
                shutil.rmtree(dropped, ignore_errors=True)
        self._recording.recorder.keep_from(steps[-KEPT:][0])
        written_ns, copied = time.monotonic_ns() - began, self._staging.size_bytes
        cost = {"step": snapshot.step, "bytes": copied, "copied_ns": copied_ns, "written_ns": written_ns}
        self._recording.note("state_snapshot", **cost)
        if not self._told_cost:
            self._told_cost = True
            self._say(
                f"the state snapshot of step {snapshot.step} has {_mib(copied)}: copied in {copied_ns / 1e6:.1f} ms, "
                f"then written in {written_ns / 1e6:.0f} ms in the background"
            )

    def _write_to(self, folder: Path, snapshot: StateSnapshot) -> None:
        folder.mkdir(mode=0o700)
        self._staging.write(folder / files.TENSORS)
        (folder / files.DESCRIPTION).write_bytes(snapshot.to_bytes())
        for path in folder.iterdir():
            path.chmod(0o600)

    def _is_held(self) -> bool:
        """Whether the new snapshot must go. While fewer than `KEPT` are there it drops none, and an incident may need
        it: it may be the only one from before."""
        return len(states_of(self._home)) >= KEPT and self._hold.is_on()

    def _discarded(self) -> None:
        """This thread lasts as long as the hold, so that no other snapshot is copied in vain; the program's own thread
        looks at no file for it. Then the next step makes up for this one."""
        while self._hold.is_on() and not self._ended:
            time.sleep(_HOLD_LOOK_S)
        self._take_later()

    @property
    def _folder(self) -> Path:
        assert self._recording.folder is not None, "the recording is open"
        return self._recording.folder

    @property
    def _home(self) -> Path:
        return Path(self._recording.config.home) / STATES / self._folder.name

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Gathered:
            self._guarded(lambda: self._postpone(_GATHERED_AT_MARK if COUNTER.by_hand else _GATHERED))
        except Exception as error:
            if is_for_the_program(error):
                self._leave_out()
                raise
            self._end(str(error) if isinstance(error, PrismError) else repr(error))

    def _leave_out(self) -> None:
        """What is half copied is no snapshot; the next step begins one anew."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._taken_at = min(self._taken_at, self._whole_at)

    def _end(self, why: str) -> None:
        """No further snapshots. Those that there are stay, and payloads are kept as without."""
        if self._ended:
            return
        self._ended, self._objects, self._ddp_modules, self._unwritten = why, {}, [], None
        restore_point.await_no_more()
        config = self._recording.config
        with suppress(Exception):  # this is where failures end
            self._doubted.remove()
            if self._pending is not None:
                self._pending.cancel()
                self._pending = None
            self._recording.recorder.keep_small(0, 0)
            self._recording.window(config.window_steps != 0, max(config.window_steps, 0), config.window_bytes)
            if not config.checkpoint_every:  # else the supervisor says from where on
                self._recording.recorder.keep_from(NO_STEP)
        self._recording.note(NO_STATE, text=why)
        self._say(f"no further state snapshots of rank {self._recording.rank}: {why}", always=True)

    def _say(self, text: str, *, always: bool = False) -> None:
        if always or self._recording.rank == 0:
            say(text)


@contextmanager
def _apart(recorder: Recorder) -> Iterator[None]:
    """No collective is issued, now or by the next step: other ranks may not be asked for their state, as those that are
    not recorded."""
    recorder.refuse(True)
    try:
        with ours(), kept_gathered():
            yield
    finally:
        if recorder.refuse(False):
            raise UsageError(
                "state_dict() of a registered object issues collectives",
                hint="register objects whose state_dict() returns only the part of this rank, such as the modules "
                "themselves, or record with --checkpoint-every",
            )


class _Pending:
    """A snapshot that is being taken. What is read first, in the optimizer's step, is copied at once."""

    def __init__(
        self,
        objects: Registered,
        modules: list[torch.nn.Module],
        buckets: list[ddp_buckets.Buckets],
        recorder: Recorder,
        *,
        by_hand: bool,
    ) -> None:
        self.by_hand = by_hand
        self.packer = Packer()
        self.modules = modules
        self.evaluated = False  # a module was called in another mode than that of the step
        self.random = random_state.read()
        self.random_at_forward: random_state.Json | None = None
        self.moment: Moment | None = None
        self.past_records = 0
        self.sequences: tuple[files.Sequence, ...] = ()
        self.copied_ns = 0
        self._buckets = tuple(buckets)
        self._objects = objects
        self._packed: dict[str, Packed] = {}
        self._hooks = ForwardHooks([], lambda module: None)
        with _apart(recorder), torch.no_grad():
            for name in (name for name, thing in objects.items() if _is_position(thing)):
                self._packed[name] = self.packer.pack(state_of(objects[name]), name)
            self.packer.tensors = {name: tensor.clone() for name, tensor in self.packer.tensors.items()}
        self.began_again = False
        self._unwatch = [self._watch(thing) for thing in objects.values() if _is_position(thing)] if not by_hand else []

    def cancel(self) -> None:
        """Nothing waits for a forward pass or a new epoch any more."""
        self.stop_watching()
        self._hooks.remove()

    def stop_watching(self) -> None:
        while self._unwatch:
            self._unwatch.pop()()

    def _watch(self, thing: Any) -> Callable[[], None]:
        """Notices that it is iterated over from its beginning, as in a new epoch."""
        kind = type(thing)
        own, original = vars(kind).get("__iter__"), kind.__iter__

        def begun(mine: Any) -> Any:
            self.began_again |= mine is thing
            return original(mine)

        kind.__iter__ = begun
        return partial(setattr, kind, "__iter__", own) if own is not None else partial(delattr, kind, "__iter__")

    def pack(self) -> None:
        """What was not read yet."""
        for name in self._objects.keys() - self._packed.keys():
            self._packed[name] = self.packer.pack(self._objects[name].state_dict(), name)

    def at_forward(self, action: Callable[[], None], guarded: Callable[[Callable[[], None]], None]) -> None:
        """Calls `action` once, when the next forward pass of one of the modules begins: in its mode of now, if it is to
        show where the next step begins."""
        trained = {id(module): _mode_of(module) for module in self.modules}

        def begun(module: torch.nn.Module) -> None:
            if id(module) not in trained:  # a shallow copy has the same hooks
                return
            if not self.by_hand and _mode_of(module) != trained[id(module)]:
                self.evaluated = True
                return
            self.cancel()
            action()

        self._hooks = ForwardHooks(self.modules, lambda module: guarded(lambda: begun(module)))

    def described(self, prologue_records: int) -> StateSnapshot:
        assert self.moment is not None, "it was copied"
        return StateSnapshot(
            moment=self.moment,
            past_records=self.past_records,
            prologue_records=prologue_records,
            by_hand=self.by_hand,
            sequences=self.sequences,
            objects={name: self._packed[name] for name in self._objects},
            random=self.random,
            random_at_forward=self.random_at_forward,
            buckets=self._buckets,
        )


def keep_prologue(log: Path, target: Path) -> None:
    """Keeps what is in the log so far under a second name: it stays when the log's own files go. A file that the rank
    still writes to is the same file."""
    target.mkdir(parents=True, mode=0o700)
    for path in sorted([*log.glob("events.*.seg"), *log.glob("payload.*.seg")]):
        try:
            os.link(path, target / path.name)
        except FileNotFoundError:  # it went meanwhile
            continue
        except OSError:  # a file system without links
            shutil.copyfile(path, target / path.name)


def copy_s_per_byte() -> float:
    """From memory that was touched before into such."""
    source, target = (torch.full((_TRIED_BYTES,), value, dtype=torch.uint8, device="cpu") for value in (1, 0))
    began = time.perf_counter()
    target.copy_(source)
    return (time.perf_counter() - began) / _TRIED_BYTES


def _copy_time(size_bytes: int) -> str:
    return f"copying a snapshot takes about {size_bytes * copy_s_per_byte() * 1e3:.1f} ms on this machine"


def _is_position(thing: Any) -> bool:
    """Whether it says where in the data the program is: it is iterated over."""
    return hasattr(type(thing), "__iter__") and not isinstance(thing, torch.nn.Module)


def _mode_of(module: torch.nn.Module) -> tuple[bool, bool]:
    """A program may set that of the module in DDP alone."""
    inner = module.module if isinstance(module, DistributedDataParallel) else module
    return module.training, inner.training


def _changes_after_the_optimizer(thing: Any) -> bool:
    """As schedules and scalers do; where a loader stands is read in the optimizer's step."""
    return not isinstance(thing, torch.nn.Module | torch.optim.Optimizer) and not _is_position(thing)


def _parameters_of(thing: Any) -> Iterator[torch.Tensor]:
    if isinstance(thing, torch.nn.Module):
        yield from thing.parameters()


def _size_bytes(tensor: torch.Tensor) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"
