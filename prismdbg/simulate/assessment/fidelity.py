"""How much of a result is real, recorded, modelled or assumed, and how far it is off where that is known. No result is
given without it. `judging` fills it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prismdbg.simulate.graph.entries import PROVENANCES, Provenance

COMPONENTS = ("computation", "communication", "memory")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Of one component over all ranks: so much of its time and of its bytes has this provenance."""

    component: str
    provenance: Provenance
    time_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedError:
    """Simulated less known, as shares: of the rank's known iteration, memory of its known peak. Over `ranks` ranks."""

    component: str
    against: str
    ranks: int
    mean: float
    worst: float
    worst_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Numbers of ranks: that ran, of a class with a second member that agreed, and represented only by the mesh."""

    own: int
    checked: int
    assumed: int

    @property
    def world(self) -> int:
        return self.own + self.checked + self.assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """`doubts`: what is not reliable, a noun phrase and the reason. errors: where the truth is known. ran: None where
    nothing did."""

    shares: tuple[Share, ...]
    doubts: tuple[str, ...]
    errors: tuple[SignedError, ...] = ()
    ran: Ran | None = None

    def time_share(self, provenance: Provenance, component: str = "") -> float:
        return self._share("time_ns", provenance, component)

    def bytes_share(self, provenance: Provenance, component: str = "") -> float:
        return self._share("size_bytes", provenance, component)

    def _share(self, what: str, provenance: Provenance, component: str) -> float:
        counted = [share for share in self.shares if component in ("", share.component)]
        total = sum(getattr(share, what) for share in counted)
        return sum(getattr(s, what) for s in counted if s.provenance is provenance) / total if total else 0.0

    def lines(self) -> list[str]:
        return [
            *self._parts("time_ns", "time of all ranks", lambda total: f"{total / 1e9:,.3f} s"),
            *self._parts("size_bytes", "bytes of all ranks", say_size),
            *([self._who(self.ran)] if self.ran is not None else []),
            *self.error_lines(),
            *(f"not reliable: {doubt}" for doubt in self.doubts),
        ]

    def summary(self) -> str:
        """Of the time, in a few words."""
        total = sum(share.time_ns for share in self.shares)
        return f"of the time {_shares(self._of('time_ns', ''), total)}" if total else "nothing took any time"

    def error_lines(self) -> list[str]:
        return [_error(error) for error in self.errors]

    def _parts(self, what: str, title: str, say: Callable[[int], str]) -> list[str]:
        """Of the whole, then of each component, as a share of the whole."""
        total = sum(getattr(share, what) for share in self.shares)
        if not total:
            return []
        found = [f"{title}, {say(total)}: {_shares(self._of(what, ''), total)}"]
        for component in COMPONENTS:
            of_it = self._of(what, component)
            if of_it:
                found.append(f"  {component}: {_shares(of_it, total)}")
        return found

    def _of(self, what: str, component: str) -> dict[Provenance, int]:
        found = {
            p: sum(getattr(s, what) for s in self.shares if s.provenance is p and component in ("", s.component))
            for p in PROVENANCES
        }
        return {provenance: amount for provenance, amount in found.items() if amount}

    def _who(self, ran: Ran) -> str:
        rest = [
            *([f"{ran.checked:,} represented by a class with a second member that agreed"] if ran.checked else []),
            *([f"{ran.assumed:,} represented only by the mesh"] if ran.assumed else []),
        ]
        return "; ".join([f"{ran.own:,} of {ran.world:,} ranks ran", *rest])


def _shares(amounts: dict[Provenance, int], total: int) -> str:
    return ", ".join(f"{_percent(amount / total)} {provenance}" for provenance, amount in amounts.items())


def _percent(share: float) -> str:
    """What is there is never said to be nothing, and what is missing never to be whole."""
    if 0 < share < 0.0005:
        return "under 0.1%"
    if 0.9995 < share < 1:
        return "over 99.9%"
    return f"{share:.1%}"


def _error(error: SignedError) -> str:
    of = (
        "" if error.component == "iteration" else " of its peak" if error.component == "memory" else " of the iteration"
    )
    worst = f", at worst {_signed(error.worst)} (rank {error.worst_rank})" if error.ranks > 1 else ""
    ranks = f"{error.ranks:,} ranks" if error.ranks > 1 else f"rank {error.worst_rank}"
    return f"against {error.against}, {ranks}: {error.component} {_signed(error.mean)}{of}{worst}"


def _signed(share: float) -> str:
    """Without a sign of what rounds to nothing."""
    text = f"{share:+.2%}"
    return "0.00%" if text == "-0.00%" else text


def say_size(size_bytes: int) -> str:
    """Four digits, in powers of a thousand."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.4g} {unit}"
