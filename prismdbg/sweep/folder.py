"""The folder of a sweep: one folder for each configuration, with its run and what became of it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.partial import partial_file
from prismdbg.capsule.secrets.masking import (
    redact_arguments,
)
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.run_folder import cannot_be_made, not_empty, write_json
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.sweep.marker import DESCRIPTION
from prismdbg.sweep.request import SweepRequest, Trial, digests, still_input
from prismdbg.sweep.result import Result
from prismdbg.sweep.space import Configuration
from prismdbg.sweep.workers.guardian import hold, longest_end_s

FORMAT = 1
RESULTS = 4  # counted up when a result gets other values: older ones are worked out again
_RESTS_ON = "rests_on"
TRIALS, RUN, RESULT = "trials", "run", "result.json"
COMPARED = "compared.json"
CLUSTER = "cluster.yaml"  # a copy of what results rest on; none where no cluster was given
_BEGUN, _RAN, _FILES = "begun.json", "ran.json", "files"


class _Described(TypedDict):
    format: int
    digest: str
    files: NotRequired[dict[str, str]]  # those of the first start: what came later, the program may have written


class _Files(TypedDict):
    files: dict[str, str]  # digests by name


@dataclass(frozen=True, slots=True)
class SweepFolder:
    path: Path
    request: SweepRequest

    @classmethod
    @contextmanager
    def opened(cls, request: SweepRequest) -> Iterator[SweepFolder]:
        """A new folder, or the one of an earlier start of this sweep, for this process alone. `UsageError` where it
        holds anything else, or another sweep goes on in it."""
        folder = cls._of(request)
        descriptor = os.open(request.output / DESCRIPTION, os.O_RDWR | os.O_CLOEXEC)  # NFS locks what may be written
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder._keep_cluster()
            folder._remove_outdated()
            yield folder
        except BlockingIOError:
            hint = "wait until it has ended, or give another folder with -o"
            raise UsageError(f"another sweep runs in {request.output}", hint=hint) from None
        finally:
            os.close(descriptor)

    @classmethod
    def _of(cls, request: SweepRequest) -> SweepFolder:
        folder = cls(request.output, request)
        described = request.output / DESCRIPTION
        if not described.is_file():
            folder._make()
            said = redact_arguments(request.command).words  # to be shown, never to be run
            about = {"command": list(said), "how": str(request.how), "world": request.space.world}
            write_json(described, {"format": FORMAT, "digest": request.digest, _FILES: request.files, **about})
        stored = checked_json.checked(_Described, checked_json.read(described).value, str(described))
        files = stored.get("files", {})
        is_same = stored["digest"] == request.digest and digests(files) == files
        if stored["format"] != FORMAT or not is_same:
            raise UsageError(
                f"{request.output} contains a sweep of another command, with other options, or of an older program",
                hint="give its own command line again to continue it, or another folder with -o; --try may differ",
            )
        return folder

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise not_empty(self.path)
        except OSError as error:
            raise cannot_be_made(self.path, error) from error

    def _keep_cluster(self) -> None:
        """For whoever opens a run of it later."""
        copy = self.path / CLUSTER
        if self.request.cluster is None:
            copy.unlink(missing_ok=True)
            return
        with partial_file(copy) as partial:
            partial.file.write(self.request.cluster.read_bytes())
            partial.publish(copy)

    def _remove_outdated(self) -> None:
        """Removes results that are worked out again, and their comparison: nobody is to see them beside new ones."""
        rests_on = self._rests_on
        outdated = [path for path in (self.path / TRIALS).glob(f"*/{RESULT}") if _said_rests_on(path) != rests_on]
        for path in outdated:
            path.unlink()
        if outdated:
            (self.path / COMPARED).unlink(missing_ok=True)

    def trial(self, configuration: Configuration) -> Trial:
        name = configuration.name
        run, output = self.path / TRIALS / name / RUN, self.output_of(name)
        return Trial(request=self.request, configuration=configuration, run=run, output=output)

    def output_of(self, name: str) -> Path:
        """All that the configuration of this name printed."""
        return self.path / TRIALS / name / "output.txt"

    def begin(self, trial: Trial) -> None:
        """Removes what an interrupted start of it left, once its processes have ended."""
        own = trial.output.parent
        own.mkdir(parents=True, exist_ok=True)
        held = hold(own, longest_end_s())
        shutil.rmtree(own, ignore_errors=True)
        trial.folder.mkdir(parents=True)
        write_json(own / _BEGUN, {_FILES: trial.files})
        os.close(held)

    def has_run(self, trial: Trial) -> bool:
        """And with the files that it read: one that was edited since is another program."""
        own = trial.output.parent / _RAN
        return own.is_file() and (files := _files(own)) == digests(files)

    def is_complete(self, name: str) -> bool:
        """Whether the configuration of this name has run."""
        return (self.path / TRIALS / name / _RAN).is_file()

    def ran(self, trial: Trial) -> None:
        """Its run is whole, whatever is worked out from it."""
        own = trial.output.parent
        files = still_input(_files(own / _BEGUN))
        write_json(own / _RAN, {"configuration": trial.configuration.name, _FILES: files})

    def run_again(self, trial: Trial) -> None:
        """With the next sweep: nothing can be worked out from this run, which stays until then."""
        (trial.output.parent / _RAN).unlink(missing_ok=True)

    def result(self, trial: Trial) -> Result | None:
        """What was worked out of its run before; None where that was not, or for another cluster."""
        path = _result(trial)
        if not (self.has_run(trial) and path.is_file()):
            return None
        value = checked_json.read(path).value
        return Result.from_json(value, str(path)) if value.get(_RESTS_ON) == self._rests_on else None

    def remove_trials(self) -> None:
        shutil.rmtree(self.path / TRIALS, ignore_errors=True)
        (self.path / COMPARED).unlink(missing_ok=True)

    def keep_prediction(self, result: Result, graph: JobGraph) -> None:
        """In place of a run, the graph: it opens as one."""
        own = self.path / TRIALS / result.name
        (own / RUN).mkdir(parents=True, exist_ok=True)
        path = own / RUN / graph_file.FILE_NAME
        with partial_file(path) as partial:
            graph_file.save(graph, partial.place)
            partial.publish(path)
        write_json(own / RESULT, result.to_json())

    def keep(self, trial: Trial, result: Result) -> None:
        write_json(_result(trial), {**result.to_json(), _RESTS_ON: self._rests_on})

    @property
    def _rests_on(self) -> str:
        """Of what a result is worked out from, beside the run."""
        cluster = b"" if self.request.cluster is None else self.request.cluster.read_bytes()
        return hashlib.sha256(cluster + f"{self.request.digest} {self.request.tokens} {RESULTS}".encode()).hexdigest()


def _files(path: Path) -> dict[str, str]:
    return checked_json.checked(_Files, checked_json.read(path).value, str(path))["files"]


def _said_rests_on(path: Path) -> object:
    """None of a prediction, an older result, or one that is damaged."""
    try:
        return checked_json.read(path).value.get(_RESTS_ON)
    except CapsuleError:
        return None


def _result(trial: Trial) -> Path:
    return trial.output.parent / RESULT
