"""The change over of a restored rank: the same group objects, from now on among virtual peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prismdbg.model import user_code
from prismdbg.model.moment import Moment
from prismdbg.protocol.wire import Message
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.emulation import fake_world
from prismdbg.rank.recording import disk_limit, exception_hooks
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.rank.replay import redacted
from prismdbg.rank.replay.recorded_clocks import RecordedClocks
from prismdbg.rank.replay.replayed_rank import Replaying

if TYPE_CHECKING:
    from prismdbg.rank.agent import Agent
    from prismdbg.rank.recording.recorded_rank import Recording
    from prismdbg.rank.recording.recorder import Recorder


def change_over(recording: Recording, agent: Agent, message: Message) -> Message:
    """Takes the log from `message["log"]`; the rank stays parked until `resume`."""
    user_code.use(tuple(map(str, message.get("user_code", ()))))
    recorder = recording.recorder
    counters = _counters_of(recorder)
    replaying = Replaying(Path(str(message["log"])), agent, counters)
    replaying.prepare()
    fake_world.install()
    disk_limit.end_there()
    redacted.install_files(map(str, message.get("redacted_files", ())))
    recording.ended = True
    recording.lost = "changed over to virtual peers"
    COUNTER.listen(replaying.on_step)
    exception_hooks.install(replaying)
    recorder.handover(replaying.replayer.rescue)  # its kernels go, then ours come
    replaying.install()
    _give_recorded_times(recording, replaying)
    in_flight = [int(number) for number in message.get("in_flight", [])]
    resume, progress = agent.verbs["resume"], agent.verbs["progress"]

    def first_resume(request: Message) -> Message:
        """The parked thread re-issues its call, which now reaches the virtual peers."""
        gate = replaying.gate
        if request.get("end") is not None:
            replaying.replayer.end = int(request["end"])
        replaying.replayer.measure.take(request)
        gate.take_aim(request)
        agent.verbs |= {"resume": resume, "progress": progress}
        recorder.park(False)
        return {}

    agent.verbs["resume"] = first_resume
    agent.verbs["progress"] = lambda request: {**progress(request), "stopped": "parked"}
    return {
        "moment": str(counters.moment),
        "record_id": counters.record_id,
        "in_flight": in_flight,
        "records": len(replaying.log.collectives),
    }


def _counters_of(recorder: Recorder) -> Counters:
    """Those of the parked recorder: the capsule's log lacks what the rank issued long before."""
    stats, counters = recorder.stats(), Counters()
    at = Moment(int(stats["step"]), int(stats["collective"]))
    counters.resume_at(at, int(stats["events"]), recorder.sequences())
    return counters


def _give_recorded_times(recording: Recording, replaying: Replaying) -> None:
    """From where the rank's own recorder was: it has counted the reads of this moment."""
    reads, clocks = recording.clock_reads, RecordedClocks()
    replaying.give_times(clocks, at=reads.at, past=reads.count)
    clocks.begin()
