"""Replay from a state snapshot: the program starts among virtual peers, and at its restore point gets the recorded
training state. From there on it is compared with the record, as from any other origin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from prismdbg.capsule import safetensors, state_snapshot
from prismdbg.capsule.safetensors import Part
from prismdbg.capsule.state_snapshot import StateSnapshot
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model.breakpoints import StopReason
from prismdbg.rank.agent import Agent
from prismdbg.rank.c10d import kernels, unknown_ops
from prismdbg.rank.c10d.call import Call, Redispatch
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.c10d.works import finished
from prismdbg.rank.debug.gate import Stop
from prismdbg.rank.program.frames import program_frame
from prismdbg.rank.program.isolation import ours
from prismdbg.rank.recording import ddp_buckets, exception_hooks, random_state, restore_point
from prismdbg.rank.recording.forward_hooks import ForwardHooks
from prismdbg.rank.recording.plain_state import DTYPES, Unpacker, tensors_in
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.rank.replay import recorded_clocks
from prismdbg.rank.replay.carried import CarriedVariables
from prismdbg.rank.replay.lone_stores import LoneStores
from prismdbg.rank.replay.prologue import Prologue
from prismdbg.rank.replay.recorded_outcomes import RecordedOutcomes
from prismdbg.rank.replay.replayed_rank import Replaying
from prismdbg.rank.replay.unregistered import unregistered
from prismdbg.settings.rank_config import RankConfig

_SHOWN = 20
_OPTIMIZER = torch.optim.Optimizer


def begin_prologue(config: RankConfig, folder: Path, outcomes: RecordedOutcomes, stores: LoneStores) -> None:
    """Until the program comes to its restore point. `folder`: of the snapshot."""
    snapshot = StateSnapshot.read(folder)
    prologue = Prologue(folder / state_snapshot.PROLOGUE, snapshot.prologue_records)
    restorer = _Restorer(config, folder, snapshot, prologue, outcomes, stores)
    ddp_buckets.watch()
    kernels.install(prologue)
    unknown_ops.install(unknown_ops.refuse)
    os.register_at_fork(after_in_child=lambda: kernels.install(None))
    COUNTER.listen(restorer.on_step)
    restore_point.answer_with(restorer.reached, recorded=restorer.recorded, step=snapshot.step)


class _Restorer:
    def __init__(
        self,
        config: RankConfig,
        folder: Path,
        snapshot: StateSnapshot,
        prologue: Prologue,
        outcomes: RecordedOutcomes,
        stores: LoneStores,
    ) -> None:
        self._config = config
        self._folder = folder
        self._snapshot = snapshot
        self._prologue = prologue
        self._outcomes = outcomes
        self._stores = stores
        self._done = False
        self._pid = os.getpid()

    def on_step(self, *_: Any) -> None:
        """Refuses a step before the restore point: a recorded program would get no snapshot, an edited one no state."""
        if not self._done and os.getpid() == self._pid:
            raise UsageError(
                "the program did not call prismdbg.restore_point before its first step",
                hint="keep the call in the edited program (--source), before its loop",
            )

    def reached(self, objects: restore_point.Registered) -> int | None:
        """Holds the program in its call of `restore_point` until a client resumes it."""
        if self._done:  # as when it was recorded: the first call counts
            return None
        self._done = True
        self._require_same(objects)
        snapshot, carried = self._snapshot, CarriedVariables(_caller(), objects.values())
        with ours(), torch.no_grad():
            self._load(objects)
        _order_buckets(objects, snapshot, self._prologue)
        random_state.put_back(snapshot.random)
        _at_first_forward([*_modules(objects), *ddp_buckets.modules_of(objects.values())], snapshot)
        COUNTER.go_on_from(snapshot.step, by_hand=snapshot.by_hand)
        self._hold(objects, carried)
        return snapshot.step

    @property
    def _tensors(self) -> Tensors:
        return Tensors(self._folder / state_snapshot.TENSORS)

    def recorded(self, name: str) -> Any:
        """Asked before the restore point."""
        packed = self._snapshot.objects.get(name)
        with ours(), torch.no_grad():
            return None if packed is None else Unpacker(self._tensors.new).unpack(packed)

    def _require_same(self, objects: restore_point.Registered) -> None:
        recorded = self._snapshot.objects
        if problem := restore_point.unfit(objects):
            raise UsageError(f"prismdbg.restore_point: {problem}")
        if objects.keys() != recorded.keys():
            raise UsageError(
                f"prismdbg.restore_point registers {', '.join(objects)}; "
                f"the recorded program registered {', '.join(recorded)}",
                hint="use the names that the recorded program registered",
            )

    def _load(self, objects: restore_point.Registered) -> None:
        """Modules first: optimizers look at the parameters. A loader that had not begun has no state to load."""
        tensors = self._tensors
        for name, thing in sorted(objects.items(), key=lambda item: not isinstance(item[1], torch.nn.Module)):
            like = tensors_in({n: _parameters(o) for n, o in objects.items()})
            state = Unpacker(tensors.new, like).unpack(self._snapshot.objects[name])
            if state is not None:
                thing.load_state_dict(state)
                if isinstance(thing, torch.optim.Optimizer):
                    _keep_types(thing, state)

    def _hold(self, objects: restore_point.Registered, carried: CarriedVariables) -> None:
        snapshot = self._snapshot
        counters = Counters()
        counters.resume_at(snapshot.moment, snapshot.past_records, snapshot.sequences)
        agent = Agent(Path(self._config.socket_dir) / "replay.sock")
        replaying = Replaying(Path(self._config.log), agent, counters)
        replaying.before_a = {
            "unregistered": [*unregistered(objects, _caller()), *carried.not_loaded()][:_SHOWN],
            "synthesized": self._prologue.not_recorded[:_SHOWN],
        }
        replaying.prepare()
        replaying.install()
        if (clocks := recorded_clocks.begun()) is not None:
            clocks.forget()
            replaying.give_times(clocks, at=(snapshot.moment.step, snapshot.moment.collective))
        COUNTER.listen(replaying.on_step)
        exception_hooks.install(replaying)
        self._outcomes.go_on_from(snapshot.step)
        self._outcomes.listen(replaying.tell)
        self._stores.listen(replaying.tell)
        replaying.gate.first_of_all(agent.start)  # whoever connects finds the rank stopped
        replaying.gate.stop(Stop(StopReason.RESTORED, counters.moment, {}, _caller(), {}))


class Tensors:
    """The tensors in a safetensors file. Its header is checked against the file's size before anything is read."""

    def __init__(self, path: Path) -> None:
        self._parts: Mapping[str, Part]
        self._parts, self._begin = safetensors.read_header(path)
        self._path = path

    def new(self, name: str) -> torch.Tensor:
        if name not in self._parts:
            raise CapsuleError(f"the state snapshot has no tensor {name[:80]!r}")
        part = self._parts[name]
        data = bytearray(part.size_bytes)
        with self._path.open("rb") as file:
            file.seek(self._begin + part.begin)
            if file.readinto(data) != part.size_bytes:
                raise CapsuleError(f"{self._path} has changed while it was read")
        flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        return flat.clone().view(DTYPES[part.dtype]).view(part.shape)


def _caller() -> FrameType | None:
    """The program's frame that calls `restore_point`, which may stand in a file of the program's own."""
    frame = program_frame()
    while frame is not None and frame.f_back is not None and frame.f_code.co_name == "restore_point":
        frame = frame.f_back
    return frame


def _parameters(thing: Any) -> list[torch.Tensor]:
    """Also what an optimizer holds, where the module itself is not registered."""
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    groups = getattr(thing, "param_groups", ())
    return [parameter for group in groups for parameter in group.get("params", ())]


def _modules(objects: restore_point.Registered) -> list[torch.nn.Module]:
    return [thing for thing in objects.values() if isinstance(thing, torch.nn.Module)]


def _keep_types(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """torch gives what an optimizer keeps of a parameter the parameter's type. One with a method of its own to load or
    save may change it on purpose."""
    kind = type(optimizer)
    if (kind.load_state_dict, kind.state_dict) != (_OPTIMIZER.load_state_dict, _OPTIMIZER.state_dict):
        return
    saved = [number for group in state["param_groups"] for number in group["params"]]
    for number, parameter in zip(saved, _parameters(optimizer), strict=True):
        kept = optimizer.state.get(parameter, {})
        for key, value in state["state"].get(number, {}).items():
            cast = kept.get(key)
            if isinstance(value, torch.Tensor) and isinstance(cast, torch.Tensor) and cast.dtype != value.dtype:
                kept[key] = value.to(cast.device)


def _at_first_forward(modules: list[torch.nn.Module], snapshot: StateSnapshot) -> None:
    """What drew random numbers between the restore point and the first forward pass may have drawn others: an iterator
    that is made anew, for instance."""
    if snapshot.random_at_forward is None:
        return

    def begun(_: torch.nn.Module) -> None:
        hooks.remove()
        random_state.put_back(snapshot.random_at_forward)

    hooks = ForwardHooks(modules, begun)


def _order_buckets(objects: restore_point.Registered, snapshot: StateSnapshot, prologue: Prologue) -> None:
    """Lets each DDP module order its buckets as the recorded one had. It asks rank 0 for the order, by two broadcasts,
    and takes it from there on every rank."""
    modules = ddp_buckets.modules_of(objects.values())
    if len(modules) != len(snapshot.buckets):
        raise UsageError(
            f"{len(modules)} DDP modules are registered; the recorded program registered {len(snapshot.buckets)}",
            hint="use the same DDP modules as the recorded program",
        )
    try:
        for module, order in zip(modules, snapshot.buckets, strict=True):
            if order:
                kernels.install(_BucketOrder(order))
                module.reducer._push_all_rebuilt_params()
                module.reducer._rebuild_buckets()
    finally:
        kernels.install(prologue)


class _BucketOrder:
    """Answers what DDP asks: all indices with the number of buckets behind them, then the size of each bucket."""

    def __init__(self, order: ddp_buckets.Buckets) -> None:
        self._answers = self._told(order)

    @staticmethod
    def _told(order: ddp_buckets.Buckets) -> Iterator[list[int]]:
        yield [*(index for bucket in order for index in bucket), len(order)]
        yield [len(bucket) for bucket in order]

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        answer = next(self._answers, None)
        target = call.outputs[0] if call.outputs else None
        if answer is None or target is None or target.numel() != len(answer):
            raise CapsuleError(f"DistributedDataParallel asks {call.spec.label} while it orders its buckets")
        target.copy_(torch.tensor(answer, dtype=target.dtype))
        return call.result(finished(call))

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        raise error
