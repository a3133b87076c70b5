"""What is known of a replay that differs, from its capsule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import capsules
import pytest
from capsules import MANIFEST, RANK, make_capsule

from prismdbg.capsule.manifest import Origin
from prismdbg.jobs.replay.divergence import facts_of


@pytest.mark.parametrize(
    ("devices", "unknown"), [(("cpu",), ()), (("cpu", "cuda"), ("torch on cuda",)), (("cuda",), ("torch on cuda",))]
)
def test_the_generators_of_a_gpu_are_not_recorded(
    devices: tuple[str, ...], unknown: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that draws from them without a seed does something else in a replay from its start."""
    monkeypatch.setattr(capsules, "RANK", {**RANK, "seeds": {"torch": 1, "random": [*range(624), 0]}})
    manifest = replace(MANIFEST, device_kinds=devices, origin=Origin.START)
    facts = facts_of({}, make_capsule(tmp_path / "capsule", manifest), {})
    assert facts.unknown_seeds == unknown
