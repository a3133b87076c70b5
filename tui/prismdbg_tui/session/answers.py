"""What a debugger says, for the console: the command line's words, and where the screen shows more, fewer of them."""

from __future__ import annotations

from prismdbg.render.answer_text import answer_text, origin_texts
from prismdbg.render.stop_text import checkpoint_text, notice_text, stop_line
from prismdbg.session import answers as told
from prismdbg.session import notices
from prismdbg_tui.session.views import Json, ValueView


def answer(found: told.Answer, asked: str = "") -> str:
    """`asked`: the verb that it answers."""
    if isinstance(found, told.Arrived):
        return stop_line(found.stop, beginning=found.beginning, asked=asked) if found.stop is not None else ""
    return answer_text(found)


def kind(found: told.Answer) -> str:
    """How the console lays it out."""
    return "table" if isinstance(found, told.Memory) else "said"


def shorter(found: told.Answer) -> tuple[str, ...]:
    """For a line that has no room for the answer: what is most important first."""
    return origin_texts(found)[1:] if isinstance(found, told.Originated) else ()


def notice(found: notices.Notice) -> str:
    if isinstance(found, notices.CheckpointMade) and not found.asked:
        return checkpoint_text(found)
    return notice_text(found)


def is_bad(found: notices.Notice) -> bool:
    bad = notices.ProgramRaised | notices.Unlike | notices.BreakpointFailed
    return isinstance(found, bad) or (isinstance(found, notices.StateCompared) and not found.equal)


def progress(doing: notices.Progress) -> str:
    """`returning to 12.3`, `running, pass 2, at 12.3`. The bar beside it begins anew with each pass."""
    text = doing.text + doing.which_pass
    return text if str(doing.moment) in text else f"{text}, at {doing.moment}"


def opened(title: str, value: Json) -> list[ValueView]:
    """The tensors of a list one by one: each has statistics of its own."""
    if value.get("kind") != "sequence" or not value["items"]:
        return [ValueView(title, value)] if value.get("kind") != "sequence" else []
    return [ValueView(f"{title}[{number}]", item) for number, item in enumerate(value["items"])]
