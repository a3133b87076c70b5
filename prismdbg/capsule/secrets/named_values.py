"""Finds where a text names something and gives it a value: `name=value`, `--name value`, `("name", "value")`.

`rules` decides which of them are secret. Each name is looked at once, and a part of the text by a bounded number of
names, so the search takes a time in proportion to the text. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto


class Form(Enum):
    """How a value is written, which says how much the name before it says."""

    PLAIN = auto()  # without quotes: it may be a name of the program's
    QUOTED = auto()
    LINE = auto()  # NAME=value on a line of its own, as in `.env`
    OPTION = auto()  # `--name=value`, or '--name', 'value' in a list of arguments
    WORD = auto()  # `--name value`: the value may be the next word of a sentence
    LISTED = auto()  # one of several in brackets under a name, or the second of a pair
    AMONG = auto()  # after the name in a longer list, which may be one of names


@dataclass(frozen=True, slots=True)
class Value:
    """What stands from `start` to `end` under a name. `whole`: where it ends if what looks like its end (a comma, a
    bracket, a line) is a part of it."""

    name: str
    form: Form
    start: int
    end: int
    whole: int


_NAME = re.compile(
    r"(?<![\w.-])\.*+(?P<dash>-++)?(?P<name>[A-Za-z_][\w.-]{0,80}+)"
    r"(?:\\{0,8}[\"'`]?\]?(?:\[\d{0,9}\])?\s*(?P<sign>=>|[?+:|]?==?|\??:)\s*"
    r"|\\{0,8}[\"']\s*(?P<comma>,)\s*"
    r"|(?(dash)\s+(?:-[ \t]+)?(?=[^\s-])|(?!)))"
)
_PREFIX = r"(?:[rRbBuUfFL@$]|u8){0,2}"
# Each ends at its own quote, or where the text ends: a text may be a part of a longer one. With backslashes before the
# quotes it is a text in a text, and ends at a quote behind as many.
_QUOTED = re.compile(
    rf"{_PREFIX}(?:"
    r'"""(?P<three_double>(?:[^"\\]++|\\[\s\S]|"(?!""))*+)(?:"""|\Z)'
    r"|'''(?P<three_single>(?:[^'\\]++|\\[\s\S]|'(?!''))*+)(?:'''|\Z)"
    r'|"(?P<double>(?:[^"\\\n]++|\\[^\n])*+)(?:"|\Z)'
    r"|'(?P<single>(?:[^'\\\n]++|\\[^\n])*+)(?:'|\Z)"
    r"|`(?P<back>[^`\s]*+)(?:`|\Z)"
    r"|(?P<escape>\\{1,8}+)(?P<quote>[\"'])"
    r"(?P<inner>(?:(?!(?P=quote))[^\\\n]|(?!(?P=escape)(?P=quote))\\++(?P=quote)?)*+)(?:(?P=escape)(?P=quote)|\Z)"
    r")"
)
# Where a backslash escapes nothing: of a shell, or before the quote of a text around.
_SIMPLE = re.compile(rf"{_PREFIX}(?:\"([^\"\\\n]+)\\?\"|'([^'\n]+)')")
_UNQUOTED = re.compile(r"(?!`[^`\n]*+`)[^\s\"',;&}\])]+")
_WHOLE_WORD = re.compile(r"(?:[^\s\"']|[\"'](?=\w))*+")
_AROUND = ",;&{}[]().:\"'<>"  # what a word ends with and that is no part of it
# Not a call, nor what is opened and goes on below: `os.getenv("X")`, `get(`, `[1, 2]`. A password may hold brackets.
_WHOLE_LINE = re.compile(r"(?![(\[]|[A-Za-z_][\w.]{0,80}+[(\[](?:\S*[)\]])?[,;]?(?:[\r\n]|\Z))\S*+(?=[\r\n]|\Z)")
# A type: `str`, `Optional[str]`, `dict[str, list[str]] | None`, `&'static str`; a value in quotes or a call follows.
_TYPE = re.compile(
    r"(?:&(?:'static )?)?[A-Za-z_](?:[\w.| *]{1,80}+|\[(?:[\w.,| ]{1,80}+|\[[\w.,| ]{0,80}+\]){0,8}+\]){0,8}+=\s{0,80}"
    rf"(?={_PREFIX}[\"']|[A-Za-z])"
)
_CALL = re.compile(
    r"(?:\w{1,60}\.){0,4}(?:Secret(?:Str|Bytes)?|Field|field|Option|Argument|str|bytes|String|String\.valueOf)"
    r"\(\s{0,80}(?:default\s{0,80}=\s{0,80})?"
)
_BLOCK = re.compile(
    r"[|>][0-9+-]{0,2}[ \t]{0,80}(?:#[^\n]{0,200})?\r?\n(?:[ \t]{0,80}\r?\n){0,8}"
    r"(?P<margin>[ \t]{1,200})(?P<first>\S[^\n]*)"
)
_LINES = re.compile(rf"{_BLOCK.pattern}(?:\n(?P=margin)[^\n]*)*+")
_OPEN = re.compile(r"[\[({]\s*")
_NEXT = re.compile(r"\s*[,+]?\s*")
_CLOSE = re.compile(r"\\{0,8}[\"']{1,3}\s{0,80},?\s{0,80}[)\]}]")
_BULLET = re.compile(r"-[ \t]+")
_NEXT_BULLET = re.compile(r"[ \t]*\r?\n[ \t]*-[ \t]+")
_GIVEN = re.compile(r"(?:set_?default|get_?env|environ\.get|put_?env|set_?env)\(\s{0,20}$", re.IGNORECASE)
# A line of a Dockerfile, of a C shell, of Apache or of Windows: `ENV NAME value`.
_ENV = re.compile(
    r"^[ \t]{0,80}(?:ENV|setenv|SetEnv|setx)[ \t]{1,80}(?P<name>[A-Za-z_][\w.-]{0,80}+)[ \t]{1,80}+"
    r"(?![=\s])(?P<value>[^\r\n]++)",
    re.MULTILINE,
)
# Of XML: `<add key="name" value="value"/>`.
_ATTRIBUTES = re.compile(
    r"\b(?:key|name)\s{0,8}=\s{0,8}[\"'](?P<name>[A-Za-z_][\w.:-]{0,80}+)[\"']\s{1,80}+"
    r"value\s{0,8}=\s{0,8}(?P<quote>[\"'])(?P<value>(?:(?!(?P=quote))[^<>\n])++)(?P=quote)"
)
_DOCSTRING = ('"""', "'''")
_TEXT = r"\"[^\"\n]{0,300}\"|'[^'\n]{0,300}'"
_DEFAULT = re.compile(
    rf"(?:\s{{0,80}}(?:\w{{1,40}}\s{{0,8}}=\s{{0,8}})?(?:[\w.]{{1,80}}|{_TEXT})\s{{0,80}},){{0,8}}?"
    rf"\s{{0,80}}default\s{{0,8}}=\s{{0,8}}"
)


def named_values(text: str, is_telling: Callable[[str], object]) -> Iterator[Value]:
    """What stands under the names that say something. A value with a name in it may be none (`secrets:`, and the names
    below it), so what stands under that one follows."""
    listed_to = 0  # lists and blocks up to here were read: one within another is not read again
    named = _NAME.search(text)
    while named is not None:
        begin = named.end()  # what is before it may be a value itself: `failed: token=x`
        following = _NAME.search(text, begin)
        if is_telling(named["name"]):
            most = following.start() if following is not None else len(text)
            yield from _values_of(text, named, most)
            if begin >= listed_to:
                for value in _several(text, named):
                    listed_to = max(listed_to, value.whole)
                    yield value
        named = following
    for one in _ENV.finditer(text):
        if is_telling(one["name"]):
            yield from _of_line(text, one)
    for one in _ATTRIBUTES.finditer(text) if "value" in text else ():
        if is_telling(one["name"]):
            start, end = one.span("value")
            yield Value(one["name"], Form.QUOTED, start, end, end)


def _of_line(text: str, one: re.Match[str]) -> Iterator[Value]:
    """What is in quotes, else to the end of the line, which may go on below."""
    start, end = one.start("value"), one.start("value") + len(one["value"].rstrip(" \t\\"))
    if (quoted := _QUOTED.match(text, start)) is not None and quoted.lastgroup is not None:
        start, end = quoted.span(quoted.lastgroup)
    yield Value(one["name"], Form.LINE, start, end, end)


def _values_of(text: str, named: re.Match[str], most: int) -> Iterator[Value]:
    """`most`: where the next name begins."""
    name, begin, is_option = named["name"], named.end(), named["dash"] is not None
    if named["sign"] is not None:
        if not (text.startswith(_DOCSTRING, begin) and ":" in named["sign"]):
            yield from _quoted(text, name, begin, Form.QUOTED)
        if (call := _CALL.match(text, begin)) is not None:
            yield from _quoted(text, name, call.end(), Form.QUOTED)
        is_on_line = "\n" not in text[named.end("sign") : begin]
        if named["sign"].endswith(":") and is_on_line and (kind := _TYPE.match(text, begin)) is not None:
            call = _CALL.match(text, kind.end())
            yield from _quoted(text, name, kind.end() if call is None else call.end(), Form.QUOTED)
        yield from _unquoted(text, named, most, Form.OPTION if is_option else Form.PLAIN)
    elif named["comma"] is not None:
        form = _form_of_pair(text, named)
        for value in _quoted(text, name, begin, form):
            is_last = form is not Form.LISTED or _CLOSE.match(text, value.end) is not None
            yield value if is_last else replace(value, form=Form.AMONG)
        if is_option and (default := _DEFAULT.match(text, begin)) is not None:
            yield from _quoted(text, name, default.end(), Form.QUOTED)
    else:
        yield from _quoted(text, name, begin, Form.OPTION)
        yield from _unquoted(text, named, most, Form.WORD)


def _form_of_pair(text: str, named: re.Match[str]) -> Form:
    """`os.getenv("NAME", "value")`, `["--name", "value"]`; not `("name", "value")`, `click.option("--name", "var")`."""
    before = text[max(named.start() - 60, 0) : named.start()].rstrip("\\\"'")
    if named["dash"] is not None:
        return Form.LISTED if before.rstrip().endswith("(") else Form.OPTION
    return Form.QUOTED if _GIVEN.search(before) else Form.LISTED


def _quoted(text: str, name: str, at: int, form: Form) -> Iterator[Value]:
    spans = []
    if (match := _QUOTED.match(text, at)) is not None and match.lastgroup is not None:
        start, end = match.span(match.lastgroup)
        inner = text[start:end]
        spans.append((end - len(inner.lstrip("\r\n")), start + len(inner.rstrip("\r\n"))))
    if (match := _SIMPLE.match(text, at)) is not None:
        spans.append(match.span(match.lastindex or 0))
    for start, end in dict.fromkeys(spans):
        yield Value(name, form, start, end, end)


def _unquoted(text: str, named: re.Match[str], most: int, form: Form) -> Iterator[Value]:
    """It ends where it does, however long it is, or where the next name begins."""
    start = named.end()
    if (match := _UNQUOTED.match(text, start, max(most, min(start + 512, len(text))))) is None:
        return
    end = whole = match.end()
    if (line := _line_end(text, named)) >= end:
        form, whole = Form.LINE, line
    elif end < most and (word := _WHOLE_WORD.match(text, end, most)) is not None:
        whole = end + len(word[0].rstrip(_AROUND))
    yield Value(named["name"], form, start, end, whole)


def _line_end(text: str, named: re.Match[str]) -> int:
    """Of `NAME=...` on a line of its own, for what stands there without quotes is no name of a program's; else -1."""
    name_end, begin = named.end("name"), named.end()
    before = text[max(named.start() - 8, 0) : named.start()].rpartition("\n")[2]
    is_tight = begin == name_end + 1 and text[name_end] == "="
    if not (named["name"].isupper() and is_tight and named["dash"] is None and before in ("", "export ")):
        return -1
    line = _WHOLE_LINE.match(text, begin)
    return line.end() if line is not None else -1


def _several(text: str, named: re.Match[str]) -> Iterator[Value]:
    """Texts in brackets, entries of a list in YAML, and the lines of a block there."""
    name, at = named["name"], named.end()
    if named["sign"] is None:
        return
    if (opened := _OPEN.match(text, at)) is not None:
        at = opened.end()
        while (match := _QUOTED.match(text, at)) is not None and match.lastgroup is not None:
            start, end = match.span(match.lastgroup)
            yield Value(name, Form.LISTED, start, end, end)
            between = _NEXT.match(text, match.end())
            at = between.end() if between is not None else match.end()
    elif (bullet := _BULLET.match(text, at)) is not None:
        while bullet is not None:
            start = bullet.end()
            match = _QUOTED.match(text, start)
            start, end = match.span(match.lastgroup or 0) if match is not None else _span(text, start)
            yield Value(name, Form.LISTED, start, end, end)
            bullet = _NEXT_BULLET.match(text, match.end() if match is not None else end)
    elif named["sign"] == ":" and (block := _LINES.match(text, at)) is not None:
        start = block.start("first")
        yield Value(name, Form.QUOTED, start, start + len(block["first"].rstrip()), block.end())


def _span(text: str, start: int) -> tuple[int, int]:
    match = _UNQUOTED.match(text, start)
    return match.span() if match is not None else (start, start)
