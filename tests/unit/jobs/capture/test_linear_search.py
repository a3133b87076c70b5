"""The search for secrets takes a time in proportion to the text: each rule alone, on texts made against it.

Where a rule looks at the rest of a text from each place, a text that is four times as long takes sixteen times as long.
The texts here are short: where each place costs little, only the longer ones of `make broad` show it.
"""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prismdbg.capsule.secrets import rules
from prismdbg.capsule.secrets.margins import found_behind_margins
from prismdbg.capsule.secrets.shapes import _SHAPES
from prismdbg.jobs.capture import secret_search
from prismdbg.jobs.capture.secret_rules import _HINTS, _LINEAR, _detectors, find

CLASSES = [
    "/", "\\", "-", "_", ".", ",", ";", ":", "=", "+", "@", "#", "$", "%", "&", "*", "?", "!", "~", "^", "|",
    "<", ">", "(", ")", "[", "]", "{", "}", "'", '"', "`", " ", "\t", "\n", "a", "A", "z", "f", "0", "9",
    "\xe4", "\u0661", "a1", "A1", "aA", "a.", "a:", "a=", "a@", "a/", "a-", "a_", "a ", "a\n", "a,", "a;", 'a"',
    "a'", '"a"', "'a'", "://", "//a/", "a:b@", "/a", "<a>", "{a", "%(", "../", "x\n ",
]  # fmt: skip
BEGINNINGS = [
    "sk-", "sk-T3BlbkFJ", "T3BlbkFJ", "eyJ", "eyJ.", "eyJa.", "eyJ.eyJ", "eyJaaaaaaaaa.", "/:_authToken=",
    "//a/:_authToken=", "/:_authToken= ", "npm_", "aws", "awskey'", "aws key ", "ibm", "ibm_cos_secret_key=",
    "cos-", "sl_key=", "softlayer ", "cloudant_key=", "https://a:", "AKC", "AP1", "AKIA", "xoxb-1-", "1-",
    "a_proxy=", "_proxy=", "_proxy=x:", "a_proxy=x:y", "pw:", "pass=", "token:", "DB_PASS=", "password=",
    "secret='", 'secret="a ', "name:", "name: password", "value:", "<password>", "<a.password", "</",
    "identified by '", "identified by ", "authorization:", "Authorization: basic ", "bearer ", "cookie:a",
    "machine ", "machine a login ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "$1$", "?sig=", "&key=",
    "curl -u a", "curl ", "curl -u=", "mysql -p ", "mysql ", "sshpass -p", " -pass pass:", "key-", "gh", "hf_",
    "dp.pt.", "hvs.", "A3T", "AC", "SK", "1234567890:", "A.b.", "bot1:", "https://discord.com/api/webhooks/",
    "https://hooks.slack.com/services/T", "-us1", "://a:b/", "://a:b/c@", "://a:b@", "://a:@b",
    "--token ", "--token=", "--token\n", "--token - ", "'--token', '", "'--token','a',", "'--token',a=b,",
    '--token", ', "-pS3cretPw9", "-p", "token='", "token='\\'", 'token="""', "token='''\\", 'token=\\"', 'token=\\\\"',
    "token=`", "token=[", "token=['a',", "tokens=['token=[',", "token:\n- ", "token:\n- a\n", "token: - token:\n",
    "token: |\n a\n", "token: |\n  token: |\n", "token: >\n\n", "token: a[", "token: a[b[", "token: a|",
    "token: str = '", "token=str(", "DB_PASS=a,b", "DB_PASS=a,\n", "A=", "\nA=a,", "getenv('token','", "password=a,b&",
    "password='/a..", "password=/a~/", "password='a'x",
    "-----BEGIN PRIVATE KEY-----\n a", "-----BEGIN PRIVATE KEY----- \\n", "  | a\n", "  | token: |\n", "token=a1",
    "token=1a-", "pwd=a1_b2!", "ENV A_TOKEN a\n", "ENV A_TOKEN ", "\nENV A", 'key="a" value="', "name='token' value='",
    'name="token" value=', "token=....", "token=a!",
]  # fmt: skip
SHORT, LONG, LONGEST = 4_096, 16_384, 65_536
Rule = Callable[[str], Iterable[object]]

PLAIN: dict[str, Rule] = {
    "pairs": rules._pairs,
    "behind margins": partial(found_behind_margins, find=rules._found_in),
    "netrc": rules._NETRC.finditer,
    "attached": rules._ATTACHED_WORD.finditer,
    **{f"{number} {what}": pattern.finditer for number, (what, _, pattern) in enumerate(_SHAPES)},
    **{f"detect-secrets: {number} {what}": places for number, (_, what, places) in enumerate(_detectors())},
}


def seconds(rule: Rule, text: str) -> float:
    before = time.process_time()
    for _ in rule(text):
        pass
    return time.process_time() - before


def is_in_proportion(rule: Rule, short: str, long: str, slack_s: float) -> bool:
    """`long` is four times `short`. Where it takes too long, it may do so again: whatever else this process did."""
    return any((took := seconds(rule, long)) < slack_s or took < 9 * seconds(rule, short) + slack_s for _ in range(3))


def runs(length: int) -> list[tuple[str, str]]:
    return [(part, (part * (length // len(part) + 1))[:length]) for part in [*CLASSES, *BEGINNINGS]]


@pytest.mark.parametrize("name", PLAIN)
def test_a_rule_takes_a_time_in_proportion_to_the_text(name: str) -> None:
    for part, text in runs(LONG):
        assert is_in_proportion(PLAIN[name], text[:SHORT], text, 0.02), f"on a run of {part!r}"


@pytest.mark.parametrize("name", PLAIN)
def test_a_rule_takes_a_time_in_proportion_to_a_longer_text(name: str) -> None:
    for part, text in runs(LONGEST):
        assert is_in_proportion(PLAIN[name], text[:LONG], text, 0.1), f"on a run of {part!r}"


def nested_blocks(number: int) -> str:
    """Blocks in blocks, each with a margin of its own."""
    return "".join(f"{' ' * (depth % 150 + 1)}token: |\n" for depth in range(number // 80))


@pytest.mark.parametrize(
    "text",
    [
        nested_blocks,
        lambda number: "tokens: [" + "'tokens: [', " * (number // 13),
        lambda number: "token: |\n" + " token: |\n a\n" * (number // 13),
        lambda number: "token: '''" + "token: \\'" * (number // 9),
        lambda number: "".join(f"token={chr(92) * (n % 9)}{chr(34)}" for n in range(number // 12)),
        lambda number: 'token="' + "--token=a,b" * (number // 11),
        lambda number: "TOKEN=" + ",a=b" * (number // 4),
    ],
)
def test_values_in_values_are_not_read_again_for_each_name(text: Callable[[int], str]) -> None:
    assert is_in_proportion(rules._pairs, text(SHORT), text(LONG), 0.02)


@pytest.mark.parametrize("part", ["/", "//", "sk-", "eyJ", "a_proxy=", "pw:", "/:_authToken="])
def test_a_text_of_a_file_takes_seconds(part: str) -> None:
    assert seconds(find, part * ((1 << 18) // len(part))) < 5


def test_a_pickle_that_names_one_text_often_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(secret_search, "find", lambda text: searched.append(len(text)) or ())
    text = "token=" + "a" * 50_000
    data = pickle.dumps([text, "api_key", *["password", text] * 5000], protocol=4)
    list(secret_search._pickled(data))
    assert sorted(searched) == [7, 8, 50_006]


def test_no_part_of_memory_is_searched_for_each_beginning_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(secret_search, "find", lambda text: searched.append(len(text)) or ())
    data = bytes(1000) + b"sk-AKIAghp_hf_AIzauthorization: nvapi-" * 3000
    assert secret_search._spans_in_bytes(data, 0) == []
    assert sum(searched) <= len(data)


TOKEN = "sk-proj-" + "a1" * 10 + "T3BlbkFJ" + "b2" * 10
JWT = ".".join(base64.urlsafe_b64encode(json.dumps({"alg": n}).encode()).decode().rstrip("=") for n in ("HS", "JW"))
NPM = "//registry.npmjs.org/:_authToken=npm_" + "a1B2" * 9
PIECES = [
    TOKEN, JWT, NPM, "//a/:_authToken=", "00000000-1111-2222-3333-444444444444", "sk-", "T3BlbkFJ", "a1" * 10,
    "eyJ", ".", "=", "-", "_", "a", " ", "\n", "/:_authToken=", "npm_x", "//", '{"', f"{JWT}.sig",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example(f"{NPM}//a/:_authToken=\n00000000-1111-2222-3333-444444444444")
@example(f"{NPM}/:_authToken=")
@example(f"{NPM}{NPM}")
def test_what_the_detectors_themselves_find_is_found(text: str) -> None:
    kinds = {"npm": "NpmDetector", "openai": "OpenAIDetector", "jwt": "JwtTokenDetector"}
    assert kinds.keys() == _LINEAR.keys() and not _HINTS.keys() & kinds.keys()
    for module, name in kinds.items():
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
        own = list(_LINEAR[module](text))
        assert all(text.startswith(value, at) for at, value in own)
        for value in detector.analyze_string(text):
            assert any(value in found for _, found in own), f"{module} does not find {value!r}"


@pytest.mark.parametrize("token", [TOKEN, JWT, NPM.partition("=")[2]])
def test_each_of_them_is_found_with_its_place(token: str) -> None:
    text = f"first line\nx = //a/:_authToken={token}\n" if token.startswith("npm_") else f"first line\nx {token}\n"
    assert text.index(token) in [found.start for found in find(text) if found.value == token]
    assert all(found.start >= 0 for found in find(text))


def test_a_token_of_json_that_is_nested_too_deep_is_none() -> None:
    deep = base64.urlsafe_b64encode(b'{"a":' * 700 + b"1").decode().rstrip("=")
    deeper = base64.urlsafe_b64encode(b'{"a":' + b"[" * 2900).decode().rstrip("=")
    assert list(_LINEAR["jwt"](f"{deep}.{deep} {deeper}.{deeper}")) == []


def test_a_value_without_quotes_is_found_to_its_end() -> None:
    """Also where it is longer than what is looked at to know it."""
    value = "a1B2" * 300
    assert [found.value for found in find(f"password={value}token=x;")] == [value + "token=x"]
