"""The simulated iteration against the one that really was, rank by rank, where the graph was taken from a real run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from prismdbg.simulate.assessment.fidelity import SignedError
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.graph.origin import NOT_KNOWN, Truth


def signed_errors(
    truths: Sequence[Truth],
    *,
    against: str,
    ended_ns: Ints,
    computed_ns: Ints,
    shown_ns: Ints,
    late_ns: Ints,
    peak_bytes: Ints,
) -> tuple[SignedError, ...]:
    """Vectors by rank, as simulated. A component that no truth holds is left out."""
    simulated = {
        "iteration": ended_ns,
        "computation": computed_ns,
        "exposed communication": shown_ns,
        "waiting": late_ns,
        "exposed communication and waiting": shown_ns + late_ns,
        "memory": peak_bytes,
    }
    found = []
    for component, values in simulated.items():
        known = list(_known(truths, component, values))
        if known:
            errors = np.array([error for _, error in known])
            worst = int(np.abs(errors).argmax())
            found.append(
                SignedError(
                    component=component,
                    against=against,
                    ranks=len(known),
                    mean=float(errors.mean()),
                    worst=float(errors[worst]),
                    worst_rank=known[worst][0],
                )
            )
    return tuple(found)


def _known(truths: Sequence[Truth], component: str, simulated: Ints) -> Iterator[tuple[int, float]]:
    for truth in truths:
        known = _components(truth).get(component)
        base = truth.peak_bytes if component == "memory" else truth.iteration_ns
        if known is not None and base > 0:
            yield truth.rank, (int(simulated[truth.rank]) - known) / base


def _components(truth: Truth) -> Mapping[str, int]:
    """Waiting and transfer are one where nobody knows when the last of the others came."""
    found = {"iteration": truth.iteration_ns, "computation": truth.computed_ns}
    if truth.waited_ns == NOT_KNOWN:
        found["exposed communication and waiting"] = truth.blocked_ns
    else:
        found |= {"exposed communication": truth.blocked_ns - truth.waited_ns, "waiting": truth.waited_ns}
    if truth.peak_bytes != NOT_KNOWN:
        found["memory"] = truth.peak_bytes
    return found
