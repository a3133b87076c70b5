"""A predicted training step as text and as values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prismdbg.model.durations import four_digits
from prismdbg.model.plurals import counted
from prismdbg.predict.job.modelled_job import ModelledJob
from prismdbg.predict.model.model import Model
from prismdbg.predict.model.training import Training
from prismdbg.render import console
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.report import charts, report

_SECOND_NS = 1e9
_SHOWN = 8


def parameters(number: int) -> str:
    """`8.03 billion parameters`, `3.27 million parameters`."""
    return f"{number / 1e9:.2f} billion parameters" if number >= 1e8 else f"{number / 1e6:.2f} million parameters"


def lines(model: Model, training: Training, job: ModelledJob, timeline: Timeline) -> list[str]:
    mesh = training.mesh
    return [
        f"{parameters(model.parameters)} on {counted(mesh.world, 'rank')}, {mesh}: "
        f"{four_digits(timeline.iteration_ns)} per iteration, {_tokens_a_second(model, training, timeline):,.0f} "
        f"tokens/s, {timeline.bubble_share:.1%} of the ranks' time idle",
        "",
        *charts.waits(report.by_axis(timeline)),
        "",
        *_memory(training, job),
        "",
        *_outside(job),
        *timeline.fidelity.lines(),
    ]


def values(model: Model, training: Training, job: ModelledJob, timeline: Timeline) -> dict[str, Any]:
    return {
        "parameters": model.parameters,
        "world": training.mesh.world,
        "mesh": str(training.mesh),
        "iteration_ns": timeline.iteration_ns,
        "tokens_per_s": _tokens_a_second(model, training, timeline),
        "idle_share": timeline.bubble_share,
        "stages": [
            {
                "stage": held.stage,
                "parameters": held.parameters,
                "weight_bytes": held.weight_bytes,
                "gradient_bytes": held.gradient_bytes,
                "optimizer_bytes": held.optimizer_bytes,
                "activation_bytes": rank_class.entries.peak_bytes() - held.fixed_bytes - held.workspace_bytes,
                "workspace_bytes": held.workspace_bytes,
                "peak_bytes": rank_class.entries.peak_bytes(),
            }
            for held, rank_class in zip(job.memory, job.graph.classes, strict=True)
        ],
        "channels": [asdict(row) for row in report.by_axis(timeline)],
        "fidelity": {"summary": timeline.fidelity.summary(), **asdict(timeline.fidelity)},
        "outside_samples": job.doubts.outside,
        "not_sampled": sorted(job.doubts.unsampled),
        "short_operators_share": job.doubts.short_share,
    }


def _tokens_a_second(model: Model, training: Training, timeline: Timeline) -> float:
    return training.batch * model.sequence * _SECOND_NS / timeline.iteration_ns


def _memory(training: Training, job: ModelledJob) -> list[str]:
    """The first stage, the last, and the largest of the others."""
    peaks = [rank_class.entries.peak_bytes() for rank_class in job.graph.classes]
    rest = range(1, len(peaks) - 1)
    shown = sorted({0, len(peaks) - 1, *([max(rest, key=lambda stage: peaks[stage])] if rest else [])})
    rest_of_it = "activations and gathered weights" if training.zero >= 3 else "activations"
    found = ["memory of a rank, without what the allocator and the libraries take:"]
    for stage in shown:
        held = job.memory[stage]
        parts = {
            "weights": held.weight_bytes,
            "gradients": held.gradient_bytes,
            "optimizer": held.optimizer_bytes,
            rest_of_it: peaks[stage] - held.fixed_bytes - held.workspace_bytes,
            "workspace": held.workspace_bytes,
        }
        said = ", ".join(f"{name} {console.size(size)}" for name, size in parts.items())
        found.append(f"  stage {stage}: {console.size(peaks[stage])} ({said})")
    return found


def _outside(job: ModelledJob) -> list[str]:
    shapes = job.doubts.outside
    more = [f"  and {len(shapes) - _SHOWN} more"] if len(shapes) > _SHOWN else []
    shown = [f"  {shape}: {what}" for shape, what in list(shapes.items())[:_SHOWN]]
    return ["shapes outside what was sampled:", *shown, *more, ""] if shapes else []
