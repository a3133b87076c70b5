"""How far the simulation was from the paced emulation, as RUN/passes.json has it of its last pass."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule import json_border
from prismdbg.errors import CapsuleError
from prismdbg.predict.fidelity import SignedError

FILE_NAME = "passes.json"


def pass_errors(run: Path) -> tuple[SignedError, ...]:
    """Nothing where the run was not paced."""
    path = run / FILE_NAME
    if not path.is_file():
        return ()
    held = json_border.read(path)
    passes = held.objects("passes")
    if not passes:
        return ()
    errors = {each.integer("rank"): _error(each) for each in passes[-1].objects("ranks")}
    if not errors:
        return ()
    worst = max(errors, key=lambda rank: abs(errors[rank]))
    return (
        SignedError(
            component="iteration",
            against=f"the emulation it paced ({held.text('clock')} clock, pass {passes[-1].integer('number')})",
            ranks=len(errors),
            mean=sum(errors.values()) / len(errors),
            worst=errors[worst],
            worst_rank=worst,
        ),
    )


def _error(each: json_border.Fields) -> float:
    emulated_ns = each.integer("emulated_ns")
    if not emulated_ns:
        raise CapsuleError(f"{each.where}: emulated_ns is 0", hint="emulate it again")
    return each.integer("simulated_ns") / emulated_ns - 1
