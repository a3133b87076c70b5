"""How sure a finding of `why` is, as a sign and the name of its colour."""

from __future__ import annotations

from prismdbg.diagnosis.verdict import Certainty

SIGNS = {Certainty.CERTAIN: ("✕", "error"), Certainty.LIKELY: ("!", "warning"), Certainty.HINT: ("·", "accent")}
