"""Whether the network of a late rank's node lost data while it was late, more than before and than other nodes'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from prismdbg.telemetry.sensor import HOST, INTERFACE, PORT, TCP_RETRANSMITS
from prismdbg.telemetry.series import Telemetry

Span = tuple[int, int]
_LEAST_COUNT = 10  # in the span: a link loses a packet now and then
_TIMES = 4.0  # as often as before, and as on the other nodes
_LEAST_READ = 0.5  # of the span
_LEAST_BEFORE = 0.1  # of as long a time before it, where most of the run is late
# Of `counters` in the kernel's Documentation/infiniband/sysfs, and of RoCE in mlx5's hw_counters.
_OF_PORTS = frozenset(
    {
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "local_link_integrity_errors",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_xmit_discards",
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
    }
)
_OF_INTERFACES = frozenset({"errin", "errout", "dropin", "dropout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkErrors:
    """A counter of one node. count: in the span; rates are of a second, the median of the other nodes."""

    name: str
    count: int
    rate: float
    before: float
    elsewhere: float

    @property
    def text(self) -> str:
        return (
            f"{self.name} of its node grew by {self.count:,}: {self.rate:.1f} a second, {self.before:.1f} before, "
            f"{self.elsewhere:.1f} on other nodes"
        )


def link_errors(own: Telemetry, span: Span, others: Sequence[tuple[Telemetry, Span]]) -> LinkErrors | None:
    """The one that grew most, each span by the clock of its node. None where nothing clearly did, where it was not read
    before the span, and where no other node was read."""
    lasted_ns = max(span[1] - span[0], 1)
    before = span[0] - lasted_ns, span[0]
    found = []
    for name in sorted({name for subject, name in own.series if _tells(subject, name)}):
        count = _growth(own, name, span)
        earlier = _rate(own, name, before, least_share=_LEAST_BEFORE)
        elsewhere = [rate for each, at in others if (rate := _rate(each, name, at)) is not None]
        if count is None or earlier is None or not elsewhere:
            continue
        errors = LinkErrors(
            name=name, count=round(count), rate=count * 1e9 / lasted_ns, before=earlier, elsewhere=median(elsewhere)
        )
        if count >= _LEAST_COUNT and errors.rate >= _TIMES * max(errors.before, errors.elsewhere):
            found.append(errors)
    return max(found, key=lambda errors: errors.count, default=None)


def _tells(subject: str, name: str) -> bool:
    if subject == HOST:
        return name == TCP_RETRANSMITS
    return name in (_OF_INTERFACES if subject.startswith(INTERFACE) else _OF_PORTS if subject.startswith(PORT) else ())


def _rate(telemetry: Telemetry, name: str, span: Span, *, least_share: float = _LEAST_READ) -> float | None:
    """Over the part of the span that was read; None where that is too little of it."""
    read = [each for (subject, sensor), each in telemetry.series.items() if sensor == name and _tells(subject, sensor)]
    if not read or any(len(each.times_ns) < 2 for each in read):
        return None
    begin_ns = max(span[0], *(int(each.times_ns[0]) for each in read))
    end_ns = min(span[1], *(int(each.times_ns[-1]) for each in read))
    if end_ns - begin_ns < max(least_share * (span[1] - span[0]), *(each.period_ns for each in read), 1):
        return None
    return sum(each.growth(begin_ns, end_ns) for each in read) * 1e9 / (end_ns - begin_ns)


def _growth(telemetry: Telemetry, name: str, span: Span) -> float | None:
    rate = _rate(telemetry, name, span)
    return None if rate is None else rate * (span[1] - span[0]) / 1e9
