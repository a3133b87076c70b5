"""`prismdbg calibrate`: measures collectives, and what the ranks of a node cost each other, in a job of its own under
torchrun, and makes a cluster model of them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from prismdbg.capsule import checked_json
from prismdbg.checkpoint.bounded import Finished, run_bounded
from prismdbg.errors import FacilityError, UsageError, WaitTimeout
from prismdbg.jobs.capture.capture import Say
from prismdbg.model.plurals import counted
from prismdbg.simulate import quantities
from prismdbg.simulate.cluster import cluster_text
from prismdbg.simulate.cluster.calibration import Calibrated, Sample, calibrate_model
from prismdbg.simulate.cluster.cluster import Calibration, Factor
from prismdbg.simulate.cluster.factor_fit import FactorCase, FittedFactor, fit_factor, with_factors
from prismdbg.simulate.cluster.transfer import OPS, SEND, Geometry

BACKENDS = ("gloo", "nccl")
SIZES = tuple(256 << shift for shift in range(0, 20, 2))  # to 64 MiB
QUICK_SIZES = tuple(1 << shift for shift in range(10, 23, 4))  # to 4 MiB
ROUNDS, QUICK_ROUNDS = 25, 5
BOUND_S, QUICK_BOUND_S = 60.0, 10.0
START_BOUND_S = 120.0
OVERLAP, LINKS, PROCESSORS = MEASURES = ("overlap", "links", "processors")
AT_ONCE_SHARE = 0.15  # of the time for each of them
STEADY = 0.1
MOST_PER_PROCESSOR = 32
INSIDE, BETWEEN = "node", "network"
_PROGRAM = "prismdbg.rank.calibration"
_DROPPED = ("PRISMDBG", "PYTEST", "RANK", "LOCAL_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC", "GROUP_", "ROLE_")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateRequest:
    """`groups`: ranks on this node that measure together. sizes: of messages in bytes. bound_s: for the measuring.
    without: of `MEASURES`, what is left out.

    pin: a processor for each rank. nodes, node_rank, head: as torchrun has them; each node is told the same.
    """

    backend: str = "gloo"
    groups: tuple[int, ...] = (2, 4)
    sizes: tuple[int, ...] = SIZES
    ops: tuple[str, ...] = (*sorted(OPS), SEND)
    rounds: int = ROUNDS
    bound_s: float = BOUND_S
    pin: bool = False
    without: tuple[str, ...] = ()
    nodes: int = 1
    node_rank: int = 0
    head: str = ""

    def check(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"{self.backend!r} is not a backend", hint=f"give one of: {', '.join(BACKENDS)}")
        if not self.groups or min(self.groups) < 2:
            raise UsageError("a group needs at least two ranks", hint="write for instance --ranks 2,4")
        if not self.sizes or min(self.sizes) < 1:
            raise UsageError("no message sizes given", hint="write for instance --sizes 1KiB,64KiB,4MiB")
        if unknown := set(self.ops) - OPS - {SEND}:
            raise UsageError(
                f"{sorted(unknown)[0]!r} is not a collective", hint=f"give some of: {SEND}, {', '.join(sorted(OPS))}"
            )
        if not 0 <= self.node_rank < self.nodes:
            raise UsageError(
                f"node {self.node_rank} does not exist: the nodes are 0 to {self.nodes - 1}", hint="count nodes from 0"
            )
        if (self.nodes > 1) != bool(self.head):
            raise UsageError(
                "--nodes N and --head HOST:PORT belong together",
                hint="give both, with the same values on each node",
            )
        host, _, port = self.head.rpartition(":")
        if self.head and not (host and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16):
            raise UsageError(
                f"--head {self.head!r} is not an address",
                hint="give the host of node 0 and a port: node0:29501",
            )
        self._check_machine()

    def _check_machine(self) -> None:
        """A slip of the keyboard must not take the machine down."""
        most = MOST_PER_PROCESSOR * (os.cpu_count() or 1)
        if self.per_node > most:
            raise UsageError(
                f"{counted(self.per_node, 'rank')} are too many for this machine: at most {most} are measured here",
                hint="measure groups of a few ranks; a cluster file works for a world of any size",
            )
        needed_bytes = max(self.sizes) * self.per_node**2  # each holds what it gathers of all
        if needed_bytes > psutil.virtual_memory().total:
            raise UsageError(
                f"messages of {quantities.say_size(max(self.sizes))} among {counted(self.per_node, 'rank')} do not fit "
                "into this machine's memory",
                hint="give smaller --sizes",
            )

    @property
    def per_node(self) -> int:
        return max(self.groups)

    @property
    def not_measured(self) -> dict[str, str]:
        """Of `MEASURES`: what is not wanted, or makes no sense whatever the machine is, and why."""
        if self.backend != "gloo":
            return dict.fromkeys(MEASURES, f"it is measured over gloo only, not over {self.backend}")
        found = dict.fromkeys(self.without, "left out as requested")
        least = min(self.groups)
        if self.per_node < 2 * least:
            found.setdefault(
                LINKS, f"{counted(self.per_node, 'rank')} make one group of {least}; give --ranks {least},{2 * least}"
            )
        return found

    @property
    def at_once(self) -> tuple[str, ...]:
        return tuple(name for name in MEASURES if name not in self.not_measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """`unsupported`: operations that the backend refused, with what it said. rounds: that were counted.

    factors: measured beside the collectives. not_measured: of `MEASURES`, which have no factor, and why. others_share:
    of the CPUs, what other programs took while ranks computed at once.
    """

    calibrated: Calibrated
    rounds: int
    taken_s: float
    unsupported: Mapping[str, str]
    factors: Mapping[Factor, FittedFactor] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    others_share: float = 0.0

    @property
    def again(self) -> float:
        """How far every other measurement and the rest are apart, in the median."""
        return median(compared.sample.again for compared in self.calibrated.compared)

    @property
    def left_out(self) -> list[str]:
        return [f"not measured: {name}: {why}" for name, why in {**self.unsupported, **self.not_measured}.items()]

    @property
    def assumed(self) -> list[str]:
        """What a simulation takes a node to be, and the links between nodes as far as they were not measured."""
        cluster = self.calibrated.cluster
        ranks = f"ranks_per_node: {cluster.ranks_per_node}, the most ranks that were measured on a node"
        links = "links between nodes were not measured: the file has those of one node for them (--nodes measures them)"
        shared = (
            "node_bandwidth is from single groups with several ranks on a node; no two groups were measured at once"
        )
        return [
            f"{ranks}; change it in the file if a node has more",
            *([links] if len(cluster.tiers) == 1 else []),
            *([shared] if any(tier.node_rate for tier in cluster.tiers) else []),
        ]

    @property
    def unrest(self) -> str:
        """Empty where measurements agree among themselves."""
        if self.again > STEADY:
            return f"repeated measurements differ by {self.again:.0%}: was the machine busy with other work?"
        if self.others_share > STEADY:
            return f"other programs took {self.others_share:.0%} of the CPUs: run nothing else at the same time"
        return ""

    def text(self) -> str:
        """As a cluster file."""
        notes = [
            *([self.unrest] if self.unrest else []),
            f"{counted(self.rounds, 'round')} in {self.taken_s:.0f} s.",
            "Latency and bandwidth are fitted to the formula;",
            "operations that it describes worse than 10 % have their measured times below, which take precedence.",
            "errors: formula against measurement; for a table, each size interpolated from its neighbours.",
            *(["factors: how far single cases of work and size are from the factor."] if self.factors else []),
            *self.left_out,
            *self.assumed,
        ]
        return cluster_text.write(self.calibrated.cluster, notes)


def calibrate(request: CalibrateRequest, say: Say) -> Measurement | None:
    """None on every node but the first. `FacilityError` where torch, the backend or the job fails."""
    request.check()
    if find_spec("torch") is None:
        raise FacilityError(f"{sys.executable} has no torch", hint="install torch in the same environment as prismdbg")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="prismdbg-calibrate-") as folder:
        result = Path(folder) / "result.json"
        plan = Path(folder) / "plan.json"
        plan.write_text(json.dumps(_plan(request, result)))
        operations = counted(len(request.ops), "operation")
        say(f"measuring {operations} over {request.backend}, {request.bound_s:g} s or a little more")
        ended = _ended(request, plan)
        if request.node_rank and not ended.returncode:
            return None
        found = checked_json.read(result) if result.exists() else None
    if found is None or found.has("error") or ended.returncode:
        raise _failure(found, ended)
    return _measurement(request, found, time.monotonic() - began)


def _ended(request: CalibrateRequest, plan: Path) -> Finished:
    try:
        return run_bounded(
            _command(request, plan),
            timeout_s=START_BOUND_S + 3 * request.bound_s,
            what="the job that measures collectives",
            doing=f"measuring collectives, {request.bound_s:g} s or a little more",
            environment=_environment(),
        )
    except WaitTimeout as error:
        together = (
            f"start all {request.nodes} nodes at once, and check that {request.head} reaches node 0 from each of them. "
        )
        hint = f"{together if request.nodes > 1 else ''}--quick takes less time"
        raise WaitTimeout(str(error), hint=hint) from error


def _plan(request: CalibrateRequest, result: Path) -> dict[str, Any]:
    return {
        "backend": request.backend,
        "ops": list(request.ops),
        "groups": sorted(request.groups),
        "sizes": sorted(set(request.sizes)),
        "nodes": request.nodes,
        "rounds": request.rounds,
        "bound_s": request.bound_s * (1 - AT_ONCE_SHARE * len(request.at_once)),
        "at_once": list(request.at_once),
        "at_once_s": request.bound_s * AT_ONCE_SHARE,
        "pin": request.pin,
        "result": str(result),
    }


def _command(request: CalibrateRequest, plan: Path) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(request.per_node)]
    if request.nodes > 1:
        host, _, port = request.head.rpartition(":")
        launcher += ["--nnodes", str(request.nodes), "--node-rank", str(request.node_rank)]
        launcher += ["--master-addr", host, "--master-port", port]
    else:
        launcher += ["--standalone"]
    return [*launcher, "-m", _PROGRAM, str(plan)]


def _environment() -> dict[str, str]:
    """Nothing of a job that we may be part of."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return {**kept, "OMP_NUM_THREADS": "1", "TORCH_NCCL_BLOCKING_WAIT": "1"}


_OF_THE_LAUNCHER = re.compile(r"[IWE]\d{4} \d\d:\d\d:")  # how torch's own log begins a line


def _failure(found: checked_json.Fields | None, ended: Finished) -> FacilityError:
    if found is not None and found.has("error"):
        return FacilityError(f"collectives cannot be measured: {found.text('error')}", hint=found.text("hint"))
    said, _, _ = ended.output.partition("failed (exitcode")  # then torchrun reports at length
    lines = [line.strip() for line in said.splitlines()[:-1]]
    lines = [line for line in lines if line and not _OF_THE_LAUNCHER.match(line)] or ["it printed nothing"]
    telling = [line for line in lines if "Error" in line]
    said = (telling or lines)[-1]
    return FacilityError(
        f"the job that measures collectives ended with code {ended.returncode}: {said[:300]}",
        hint="check that a job can use this backend here, for example with --ranks 2 --quick",
    )


def _measurement(request: CalibrateRequest, found: checked_json.Fields, taken_s: float) -> Measurement:
    per_node = found.integer("per_node", least=1)
    samples = [_sample(case, per_node) for case in found.objects("cases")]
    if not samples:
        raise FacilityError(f"{request.backend} refused every operation", hint="choose another --backend")
    tiers = [(INSIDE, per_node), (BETWEEN, 0)] if request.nodes > 1 else [(INSIDE, 0)]
    origin = Calibration(
        machine=_machine(found.text("device"), found.text("torch"), request),
        backend=request.backend,
        date=time.strftime("%Y-%m-%d"),
        fits={},
    )
    eager_bytes = found.integer("eager_bytes")
    calibrated = calibrate_model(samples, tiers, per_node, origin=origin, eager_bytes=eager_bytes)
    factors = _factors(found.fields("at_once"))
    return Measurement(
        calibrated=replace(calibrated, cluster=with_factors(calibrated.cluster, factors)),
        factors=factors,
        not_measured=request.not_measured | _without_sense(request, factors),
        rounds=found.integer("rounds"),
        taken_s=taken_s,
        unsupported=found.text_map("unsupported"),
        others_share=found.number("others_share"),
    )


def _factors(found: checked_json.Fields) -> dict[Factor, FittedFactor]:
    cases = {name: [_factor_case(case) for case in found.objects(name)] for name in Factor if found.has(name)}
    return {name: fit_factor(of_it) for name, of_it in cases.items() if of_it}


def _factor_case(case: checked_json.Fields) -> FactorCase:
    return FactorCase(
        kind=case.text("kind"),
        count=case.integer("count", least=2),
        members=case.integer("members", least=1),
        size_bytes=case.integer("size_bytes"),
        alone_ns=case.integers("alone_ns"),
        at_once_ns=case.integers("at_once_ns"),
    )


def _without_sense(request: CalibrateRequest, factors: Mapping[Factor, FittedFactor]) -> dict[str, str]:
    """Of what was to be measured: what had nothing to measure here, and why."""
    found = {}
    if OVERLAP in request.at_once and Factor.COMPUTE_OVERLAP not in factors:
        found[OVERLAP] = "every transfer was over too soon; give larger --sizes"
    if PROCESSORS in request.at_once and Factor.PROCESSORS not in factors:
        cpus = counted(len(os.sched_getaffinity(0)), "CPU")
        found[PROCESSORS] = f"each of {counted(request.per_node, 'rank')} has one of {cpus} for itself"
    return found


def _sample(case: checked_json.Fields, per_node: int) -> Sample:
    nodes = [rank // per_node for rank in case.integers("ranks")]
    where = Geometry(
        members=len(nodes),
        tier=int(len(set(nodes)) > 1),
        nodes=len(set(nodes)),
        local=min(map(nodes.count, nodes)),
        sharing=int(len(set(nodes)) > 1),
    )
    return Sample(
        op=case.text("op"), where=where, size_bytes=case.integer("size_bytes"), times_ns=case.integers("times_ns")
    )


def _machine(device: str, torch: str, request: CalibrateRequest) -> str:
    ranks = f"{request.per_node} ranks" + (f" on each of {request.nodes} nodes" if request.nodes > 1 else "")
    pinned = ", pinned" if request.pin else ""
    return f"{device or _processor()}, {os.cpu_count()} processors, {ranks}{pinned}, torch {torch}"


def _processor() -> str:
    """As Linux names it."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
