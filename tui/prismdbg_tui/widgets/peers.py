"""Who takes part in the collective, and how each of them is played."""

from __future__ import annotations

from rich.text import Text

from prismdbg.diagnosis.verdict import without_folders
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import Json
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.widgets.pane import Pane

_PLAYED = {"recorded": "■", "synthesized": "▨", "this rank": "◆", "not answered": "·"}
MAX_SHOWN = 512


class Peers(Pane):
    def __init__(self) -> None:
        super().__init__("peers", "Peers")

    def show_live(self, peers: Json) -> None:
        title = f"{peers['title']}, {figures.plural(int(peers['size']), 'rank')}"
        took = peers.get("recorded_ns")
        note = f"took {figures.duration(took)} when recorded" if took is not None else ""
        rows = [(int(m["rank"]), str(m["role"]), str(m["arrived"])) for m in peers["members"]]
        self._put(title, rows, note)

    def show_recorded(self, recording: Recording, row: int) -> None:
        group, rank = recording.group(row), recording.capsule.manifest.rank
        columns = recording.columns
        involved, took = group.ranks, recording.took_ns(row)
        root = int(columns.root[row])
        if columns.is_p2p[row] and 0 <= root < len(group.ranks):
            involved = tuple(sorted({group.ranks[root], rank}))
        hang = recording.hang_at(row)
        others = "synthesized" if columns.synthesized[row] else "recorded" if took is not None else "not answered"
        rows = [
            (r, "this rank" if r == rank else others, hang.arrived(r) if hang is not None and r != rank else "")
            for r in involved
        ]
        if not columns.is_p2p[row] and 0 <= root < len(group.ranks):
            rows = [(r, f"{role}, root" if r == group.ranks[root] else role, said) for r, role, said in rows]
        note = f"took {figures.duration(took)}" if took is not None else f"the collective {recording.open_word(row)}"
        if columns.synthesized[row]:
            note = "emulated, without real peers"
        self._put(f"{group.title}, {figures.plural(group.size, 'rank')}", rows, note)

    def _put(self, title: str, rows: list[tuple[int, str, str]], note: str) -> None:
        text = Text(f"{figures.clean(title)}\n", "bold", no_wrap=True, overflow="ellipsis")
        width = max((len(str(rank)) for rank, _, _ in rows[:MAX_SHOWN]), default=1)
        for rank, role, arrived in rows[:MAX_SHOWN]:
            kind = role.split(",")[0]
            own = {"this rank": color(self.app, "accent"), "synthesized": color(self.app, "warning")}.get(kind, "")
            text.append(f" {_PLAYED.get(kind, '·')} rank {rank:<{width}}  ", own)
            said = without_folders(arrived) if arrived not in ("", "unknown") else ""
            shown = said if said and role == "not answered" else f"{role}  {said}".rstrip()
            text.append(f"{shown}\n", own or "dim")
        if len(rows) > MAX_SHOWN:
            text.append(f"   {len(rows) - MAX_SHOWN} more\n", "dim")
        text.rstrip()
        self.put(text, note)
