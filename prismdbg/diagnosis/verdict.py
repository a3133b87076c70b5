"""What a diagnosis can say, as values. Each finding's file adds its own kind of verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prismdbg.diagnosis.wording import place
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment

_TENSORS_SHOWN = 3
_RUN = re.compile(r"[^\s:]++")  # in which the name of a file may be
_LINE = re.compile(r":\d")


class Certainty(StrEnum):
    """In order: the surest first."""

    CERTAIN = "certain"  # the logs show it
    LIKELY = "likely"  # it explains the logs, and nothing in them speaks against it
    HINT = "hint"  # worth a look

    @property
    def order(self) -> int:
        return list(Certainty).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One rank's side of a collective."""

    rank: int
    collective: Collective

    @property
    def text(self) -> str:
        call = self.collective
        return f"rank {self.rank} at {call.moment}: {call.name}({self._arguments()}) {call.state}{place(call)}"

    def _arguments(self) -> str:
        call = self.collective
        tensors = call.inputs or call.outputs
        shown = [str(tensor) for tensor in tensors[:_TENSORS_SHOWN]]
        more = [f"{len(tensors) - _TENSORS_SHOWN} more"] if len(tensors) > _TENSORS_SHOWN else []
        root = [f"root {call.root}"] if call.root >= 0 and not call.is_p2p else []
        peer = [f"peer {call.root}"] if call.is_p2p and call.root >= 0 else []
        return ", ".join([*shown, *more, *filter(None, [call.reduce_op]), *root, *peer])

    def to_json(self) -> dict[str, Any]:
        call = self.collective
        frame = call.source
        return {
            "rank": self.rank,
            "moment": str(call.moment),
            "op": call.name,
            "group": call.group,
            "sequence": call.identity.seq,
            "inputs": [str(tensor) for tensor in call.inputs],
            "outputs": [str(tensor) for tensor in call.outputs],
            "state": str(call.state),
            "filename": frame.filename if frame else None,
            "line": frame.line if frame else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`began_wall_ns`: when it began, nanoseconds since 1970. `ranks`: the one to look at first comes first."""

    certainty: Certainty
    began_wall_ns: int
    ranks: tuple[int, ...]

    kind = "verdict"

    @property
    def standing(self) -> Certainty:
        """Among which verdicts it is listed."""
        return self.certainty

    @property
    def moment(self) -> Moment | None:
        """On the rank to look at first, as far as it is known."""
        return None

    @property
    def text(self) -> str:
        """One sentence."""
        raise NotImplementedError

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands below the sentence."""
        return ()

    @property
    def folded_lines(self) -> tuple[str, ...]:
        """The same for little room: a long traceback in a few lines."""
        return self.lines

    @property
    def brief(self) -> str:
        """The sentence for one line of a screen. Like `aside`, it says nothing that `text` and `lines` do not say."""
        return without_folders(self.text)

    @property
    def aside(self) -> str:
        """What matters most of `lines`, in a few words; empty where nothing does."""
        return ""

    @property
    def short_aside(self) -> str:
        """The same in fewer words, where there are."""
        return self.aside

    def details(self) -> dict[str, Any]:
        """What programs want besides: group, sequence, calls."""
        return {}

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "certainty": str(self.certainty),
            "ranks": list(self.ranks),
            "moment": None if self.moment is None else str(self.moment),
            "text": self.text,
            "lines": list(self.lines),
            **self.details(),
        }


def without_folders(text: str) -> str:
    """`train.py:61` in place of `/opt/train/train.py:61`."""
    return _RUN.sub(_without_folders, text)


def _without_folders(run: re.Match[str]) -> str:
    """Of a file with a line, whose whole name begins the run or is behind a bracket in it. Each run is looked at once:
    an expression for all of this begins again at each bracket."""
    text, begin = run[0], run.start()
    end = text.rfind("/")
    if end in (-1, len(text) - 1) or _LINE.match(run.string, run.end()) is None:
        return text
    least = text.rfind("//") + 1  # folders have names
    begins_here = least == 0 and text.startswith("/") and (begin == 0 or run.string[begin - 1] != ":")
    at = 0 if begins_here else text.find("(/", max(least - 1, 0)) + 1
    return text[:at] + text[end + 1 :] if at < end and (at or begins_here) else text


def in_order(verdicts: list[Verdict]) -> tuple[Verdict, ...]:
    """The surest first, and among equals what began first."""
    return tuple(sorted(verdicts, key=lambda verdict: (verdict.standing.order, verdict.began_wall_ns)))
