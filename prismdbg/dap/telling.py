"""What the rank and the debugger tell on their own, as events: the program's output, lines in the console, progress."""

from __future__ import annotations

from typing import Any

from prismdbg.dap.client import Client
from prismdbg.debugger.program import Program, Unseen
from prismdbg.render import stop_text
from prismdbg.session import notices
from prismdbg.session.notices import Notice

PROGRESS_ID = "prismdbg"

Json = dict[str, Any]

# For these reasons VS Code opens the innermost frame also where it is a library's, for others the program's own.
OPENING_LIBRARIES = frozenset(["step", "breakpoint", "function breakpoint"])


class Telling:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.program: Program = Unseen()
        self.wants_progress = self.is_vscode = False
        self._progress = 0  # the number of the one that is shown
        self._shown = False

    def tell(self, notice: Notice) -> None:
        """Of a stop the client is told when the rank stands."""
        self.output()
        match notice:
            case notices.Progress():
                self.progress(stop_text.progress_text(notice), notice.done, notice.total)
            case notices.ProgramRaised():
                self._client.say(stop_text.notice_text(notice), "stderr")
            case notices.Hit():
                own = stop_text.logpoint_text(notice)
                self._client.say(stop_text.notice_text(notice) if own is None else own)
            case notices.Lost():
                self._client.say(f"the rank is lost: {notice.why}; restart, or go back, to start it again", "important")
            case _:
                self._client.say(stop_text.notice_text(notice))

    def stopped(self, reason: str, body: Json) -> None:
        """`reason`: a word of the protocol. VS Code gets another one where it would open a library."""
        word = f"rank {reason}" if self.is_vscode and reason in OPENING_LIBRARIES else reason
        self._client.event("stopped", {"reason": word, **body, "allThreadsStopped": True})

    def output(self) -> None:
        """What the program printed since the last time."""
        if text := self.program.new_output():
            self._client.event("output", {"category": "stdout", "output": text})

    def progress(self, text: str, done: int = 0, total: int = 0) -> None:
        """Of what takes long: shown until `over`."""
        if not self.wants_progress:
            return
        share = {"percentage": min(100 * done // total, 100)} if total else {}
        if self._shown:
            self._client.event("progressUpdate", {"progressId": self._id, "message": text, **share})
            return
        self._progress += 1
        self._shown = True
        body = {"progressId": self._id, "title": "prismdbg", "message": text, "cancellable": True, **share}
        self._client.event("progressStart", body)

    def over(self) -> None:
        self.output()
        if self._shown:
            self._client.event("progressEnd", {"progressId": self._id})
        self._shown = False

    @property
    def _id(self) -> str:
        return f"{PROGRESS_ID}-{self._progress}"
