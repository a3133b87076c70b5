"""The state snapshots that a rank keeps in RUN: the newest two, and what came before its restore point."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.partial import partial_folder
from prismdbg.capsule.state_snapshot import DESCRIPTION, PROLOGUE, TENSORS, StateSnapshot
from prismdbg.errors import CapsuleError, PrismError
from prismdbg.jobs.capture.payload_parts import add_payloads
from prismdbg.jobs.storage.ranks_alive import RankProcess
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.log.columns import LAST_BYTES, NOT_ENDED, LogColumns, read_whole
from prismdbg.log.folding import needed_after, reaches
from prismdbg.log.rank_log import read_log
from prismdbg.model.moment import Moment
from prismdbg.settings.state_folders import STATES, states_of, unfinished_in

Done = TypeVar("Done")
_TRIES = 3


class StateGone(CapsuleError):
    """A rank keeps its newest snapshots only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """One snapshot on disk. `past_records`: collectives the rank had issued."""

    path: Path
    moment: Moment
    past_records: int

    @property
    def needed_from(self) -> int:
        return needed_after(self.past_records)

    def is_in(self, log: Path) -> bool:
        """Whether the log still reaches back to it."""
        return reaches(log, self.needed_from)

    def leads_to(self, step: int) -> bool:
        """Whether a replay from here goes through a whole step before `step`."""
        return self.moment.step < step


def list_states(run: RunFolder, folder: Path, *, skip_damaged: bool = False) -> list[KeptState]:
    """Of one rank's attempt, oldest first. The rank may drop one at any time."""
    home = run.states / folder.name
    found = []
    for step in states_of(home):
        try:
            snapshot = StateSnapshot.read(home / str(step))
        except CapsuleError:
            if not skip_damaged and (home / str(step)).exists():
                raise
            continue
        found.append(KeptState(path=home / str(step), moment=snapshot.moment, past_records=snapshot.past_records))
    return found


def usable_states(run: RunFolder, folder: Path) -> list[KeptState]:
    """Those of `list_states` at which a capsule can start."""
    return [state for state in list_states(run, folder) if state.is_in(folder)]


def why_lost(run: RunFolder, folder: Path) -> str:
    """Where snapshots are kept and none is usable: why, to be added to what follows from it."""
    lost = list_states(run, folder) and not usable_states(run, folder)
    return ": the log no longer reaches back to those that were kept (--log-bytes)" if lost else ""


def why_none(run: RunFolder, folder: Path, ended: str) -> str:
    """Why a capsule of this rank can start at no snapshot; empty where it can. `ended`: why the rank takes no further
    ones (`NO_STATE`), empty while it may."""
    if usable_states(run, folder):
        return ""
    if lost := why_lost(run, folder):
        return f"none can be used{lost}"
    if not read_json(run.config).get("state_every"):
        return "recorded without --state-every"
    if ended:
        return f"no snapshot, and no further ones are taken: {ended}"
    return "no snapshot yet: the program registered no state, or has not reached the first step of --state-every"


def remove_unfinished(run: RunFolder) -> None:
    """What ranks were writing, removing or about to write over when they ended: a rank waits for no snapshot at its
    end, and one that is killed for nothing. What one that cannot be seen from here writes stays."""
    left = [*unfinished_in(run.states), *run.ranks.glob(f"*/payload.*{fmt.SPARE}")]
    for name in sorted({path.parent.name for path in left}):
        with suppress(PrismError):  # its rank.json is damaged
            process = RankProcess(run.ranks / name)
            if process.pid is not None and not process.is_alive():
                for path in (path for path in left if path.parent.name == name):
                    _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@contextmanager
def pinned(run: RunFolder, folder: Path, state: KeptState) -> Iterator[tuple[Path, Path]]:
    """The rank's log folder and the snapshot's under other names: what the live rank drops meanwhile stays there. As
    they are where the file system has no second names, or RUN may only be read. `StateGone` where the rank has dropped
    the snapshot before."""
    with ExitStack() as held:
        try:
            partial = held.enter_context(partial_folder(run.home / "pinned"))
            log, states = partial / folder.name, partial / STATES
            _link_log(folder, log)
            _link_state(state, states)
        except FileNotFoundError:
            raise
        except OSError:
            yield folder, state.path
        else:
            yield log, states / state.path.name


def while_dropped(attempt: Callable[[], Done]) -> Done:
    """Tried again where the rank drops the snapshot that was chosen: it has a newer one by then."""
    for _ in range(_TRIES - 1):
        with suppress(StateGone):
            return attempt()
    return attempt()


def _link_log(folder: Path, target: Path) -> None:
    """Its segments of events as they all were at one time: one that goes leaves what the rest refers to in the first
    one. Received data may go."""
    while any(path.match("events.*.seg") for path in _link(folder, target)):
        shutil.rmtree(target)


def _link_state(state: KeptState, home: Path) -> None:
    try:
        gone = [*_link(state.path, home / state.path.name), *_link(state.path.parent / PROLOGUE, home / PROLOGUE)]
    except FileNotFoundError as error:
        raise _is_gone(state) from error
    if gone:
        raise _is_gone(state)


def _is_gone(state: KeptState) -> StateGone:
    return StateGone(
        f"the rank has dropped the state snapshot of step {state.path.name} while it was being captured",
        hint="capture the rank again",
    )


def _link(source: Path, target: Path) -> list[Path]:
    """Without what is being written. Gives the files that went before they had a second name."""
    target.mkdir(parents=True, mode=0o700)
    gone = []
    for path in source.iterdir():
        if path.is_symlink() or path.is_dir():
            (target / path.name).symlink_to(path.resolve())
        elif path.suffix != fmt.SPARE and not path.name.startswith("."):
            try:
                (target / path.name).hardlink_to(path)
            except FileNotFoundError:
                gone.append(path)
    return gone


def last_complete(folder: Path) -> Moment:
    """Of a rank that goes on: its last collective before which all are complete."""
    log = read_whole(folder, LAST_BYTES)
    done = _first_unfinished(log)
    if done < len(log) and log.step[done] <= log.first_step_read:  # the one before it may not be there
        log = read_whole(folder)
        done = _first_unfinished(log)
    return log.moment(done - 1) if done else Moment(0)


def _first_unfinished(log: LogColumns) -> int:
    """The row of the first collective that is not complete; the number of rows where all are."""
    unfinished = np.flatnonzero(log.ended_ns == NOT_ENDED)
    return int(unfinished[0]) if len(unfinished) else len(log)


def add_state(writer: CapsuleWriter, state: Path) -> RankLog:
    """Puts the snapshot and the prologue into the capsule. Gives the prologue's log there: a live rank writes on."""
    for name in (DESCRIPTION, TENSORS):
        writer.add_file(f"{layout.STATE}/{name}", state / name)
    prologue, home = state.parent / PROLOGUE, f"{layout.STATE}/{PROLOGUE}"
    for path in sorted(prologue.glob("events.*.seg")):
        writer.add_file(f"{home}/{path.name}", path)
    log = read_log(writer.folder / home)
    add_payloads(writer, home, prologue, log)
    return log
