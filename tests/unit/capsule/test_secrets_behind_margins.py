"""A secret of several lines is found where a traceback has put a margin before each line, or made a text of each."""

from __future__ import annotations

import base64
import textwrap
import time

import pytest

from prismdbg.capsule.secrets.masking import REDACTED, redact_text
from prismdbg.capsule.secrets.rules import found_in
from prismdbg.capsule.secrets.several_lines import parts_in

BODY = [base64.b64encode(bytes(range(start, start + 48))).decode() for start in range(20)]
KEY = "\n".join(["-----BEGIN PRIVATE KEY-----", *BODY, "-----END PRIVATE KEY-----"])
SECRETS = {
    KEY: BODY,
    "password: |\n   swordfish\nuser: me": ["swordfish"],
    "api_key: >-\n  opensesame\n  swordfish\nlr: 3": ["opensesame", "swordfish"],
    "{'password':\n 'swordfish', 'lr': 3}": ["swordfish"],
}
MARGINS = ["  | ", "    | ", "                    | "]


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("text", "values"), SECRETS.items())
def test_behind_the_margin_of_an_exception_group(margin: str, text: str, values: list[str]) -> None:
    told = (
        f"  + Exception Group Traceback\n{textwrap.indent(f'ValueError: of{chr(10)}{text}', margin)}\n    +-----\nend"
    )
    shown = redact_text(told)
    assert not any(value in shown for value in values)
    assert shown.startswith(f"  + Exception Group Traceback\n{margin}ValueError: of\n") and shown.endswith("\nend")


def test_each_value_is_found_where_it_stands() -> None:
    told = textwrap.indent("x\npassword: |\n  swordfish\nx", "  | ")
    places = [(found.start, found.value) for found in found_in(told) if "swordfish" in found.value]
    assert (told.index("swordfish"), "swordfish") in places
    assert all(told.startswith(value, start) for start, value in places)


@pytest.mark.parametrize(
    "text",
    [
        "| password: |\n|  swordfish\n",  # a table
        "  | password: |\nswordfish\n",
        "  | password: |\n    |  swordfish\n",  # another one's margin
        "  | name     | kind |\n  | password | text |\n",
    ],
)
def test_what_is_no_margin_of_a_traceback_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(("text", "values"), SECRETS.items())
@pytest.mark.parametrize("margin", ["", "  | "])
def test_in_texts_of_one_line_each(margin: str, text: str, values: list[str]) -> None:
    lines = textwrap.indent(f"before\n{text}\nafter\n", margin).splitlines(keepends=True)
    parts = parts_in(lines, found_in)
    for value in values:
        (number,) = (number for number, line in enumerate(lines) if value in line)
        assert any(value in part.value for part in parts[number])
    for line, several in zip(lines, parts, strict=True):
        assert all(line.startswith(part.value, part.start) for part in several)
        assert all(part.value == part.value.strip() != "|" for part in several)
    assert parts[0] == parts[-1] == []


@pytest.mark.parametrize(
    "key",
    [
        KEY.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n", 1),
        KEY.rpartition("\n")[0],
        KEY.rpartition("\n")[0].replace(
            "KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n"
        ),
        KEY.rpartition("\n")[0].replace("\n", "\r\n"),
        KEY.rpartition("\n")[0].replace("\n", "\\n"),
        textwrap.indent(KEY.rpartition("\n")[0], "  | ")[4:],
    ],
)
def test_of_a_private_key_with_headers_or_without_its_end_no_line_is_shown(key: str) -> None:
    shown = redact_text(f"key: {key} is refused\n")
    assert not any(line in shown for line in BODY) and shown.endswith(" is refused\n") and REDACTED in shown


def test_words_after_the_beginning_of_a_private_key_are_no_key() -> None:
    beginning = "-----BEGIN PRIVATE KEY-----"
    text = f"no line with {beginning} in unquestionably_long words of it - not one"
    assert redact_text(text) == text.replace(beginning, REDACTED)


@pytest.mark.parametrize(
    "part", ["  | a\n", "  | \n", "  | password: |\n", "  | password: |\n  |  a\n", "  | a\n    | b\n", " " * 41]
)
def test_the_search_behind_margins_takes_a_time_in_proportion_to_the_text(part: str) -> None:
    def seconds(size: int) -> float:
        text = part * (size // len(part))
        before = time.process_time()
        for _ in found_in(text):
            pass
        return time.process_time() - before

    assert seconds(1 << 18) < 9 * seconds(1 << 16) + 0.1
