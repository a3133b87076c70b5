"""Programs that report to an experiment tracker: a replay reports nothing, and sends what was sent."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from chain import assert_identical, prismdbg, replay
from jobs import plain_environment, recorded_by_command_line, torchrun

PROGRAMS = Path(__file__).parent / "programs"
WITH = pytest.mark.parametrize("row", ["transformers"])  # of the table: the environment in which this runs
KEY = "0123456789" * 4


def captured(folder: Path, program: str, *arguments: str) -> Path:
    """Rank 0 of it."""
    line, env = torchrun(PROGRAMS / program, *arguments, ranks=2), plain_environment(WANDB_API_KEY=KEY)
    env["WANDB_DIR"] = str(folder)
    made = recorded_by_command_line(line, folder / "run", "--window", "all", env=env)
    assert made.ended.code == 0, made.ended.output[-3000:]
    said = prismdbg("capture", made.run.path, "--rank", 0, "--origin", "start", "-o", folder / "capsule")
    assert said.code == 0, said.err
    return folder / "capsule"


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: `make frameworks` installs it")


@WITH
def test_a_program_that_reports_to_wandb(row: str, tmp_path: Path) -> None:
    needs("wandb")
    capsule = captured(tmp_path, "reports_to_wandb.py")
    (run,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    reported = run.read_bytes()
    assert_identical(replay(capsule, "--strict"), capsule)
    assert_identical(replay(capsule, "--strict", "--allow-writes", runtime="plain"), capsule)
    assert [*tmp_path.glob("wandb/offline-run-*/run-*.wandb")] == [run] and run.read_bytes() == reported


class Requests(BaseHTTPRequestHandler):
    """Answers what a program with one run asks a server of mlflow."""

    seen: list[str]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        name = self.path.partition("?")[0].partition("/mlflow/")[2]
        self.seen.append(name)
        body = json.dumps(ANSWERS.get(name, {})).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  by their names in the protocol

    def log_message(self, format: str, *arguments: Any) -> None:
        """Not on stderr."""


ACTIVE = {"lifecycle_stage": "active"}
EXPERIMENT = {"experiment_id": "7", "name": "mine", "artifact_location": "mlflow-artifacts:/7", **ACTIVE}
INFO = {"run_id": "0" * 32, "run_name": "big-ant-1", "experiment_id": "7", "status": "RUNNING", "start_time": 1}
RUN = {"run": {"info": {**INFO, "artifact_uri": "mlflow-artifacts:/7/0", **ACTIVE}, "data": {}}}
ANSWERS = {
    "experiments/get-by-name": {"experiment": EXPERIMENT},
    "runs/create": RUN,
    "runs/get": RUN,
    "runs/update": {"run_info": RUN["run"]["info"]},
}


@contextmanager
def served(seen: list[str]) -> Iterator[str]:
    handler = type("Handler", (Requests,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@WITH
def test_a_program_that_reports_to_an_mlflow_server(row: str, tmp_path: Path) -> None:
    needs("mlflow")
    seen: list[str] = []
    with served(seen) as address:
        capsule = captured(tmp_path, "reports_to_mlflow.py", address)
        reported = len(seen)
        assert "runs/create" in seen and "runs/update" in seen
        verdict = replay(capsule, "--allow-writes", runtime="plain")
        assert_identical_but_for_the_id(verdict)
        assert len(seen) == reported
    assert_identical_but_for_the_id(replay(capsule))


def assert_identical_but_for_the_id(verdict: dict[str, Any]) -> None:
    tally = verdict["tally"]
    assert verdict["outcome"] == "identical" and tally["compared"] == 6, verdict
    assert (tally["missing"], tally["synthesized"], tally["object_notes"]) == (0, 0, 1), verdict
