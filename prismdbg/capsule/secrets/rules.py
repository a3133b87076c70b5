"""Which texts look like a secret: by the name they stand under, and by their own shape. Standard library only.

What the rank writes and what goes into a capsule is searched by these rules. `jobs.capture.secret_rules` adds those of
detect-secrets on the host. No finding ever carries the value into a message: callers name places.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from prismdbg.capsule.secrets import own_rules
from prismdbg.capsule.secrets.margins import found_behind_margins
from prismdbg.capsule.secrets.named_values import Form, named_values
from prismdbg.capsule.secrets.names import (
    HARMLESS,
    ID_WORDS,
    SETTING_WORD,
    WEAK_WORD,
    Strength,
    ends_as_a_pat,
    is_of_account,
    kind_of,
    last_word,
    strength,
    words_of,
)
from prismdbg.capsule.secrets.shapes import TEMPLATE, Found, find_shapes

LEAST_KNOWN = 6  # characters: a shorter value is a part of many others


_LEAST_OF_ACCOUNT = 4  # digits, or characters in a text
_LEAST_DIGITS = 7  # of any other name: the numbers of a vocabulary are smaller
_LEAST_AUTH = 8
_SCHEME = re.compile(r"(?:o|open|m)?auth.*|scram.*|sha.*|md5.*|.*krb.*|ldap.*|.*tls.*|x509.*|v\d.*", re.IGNORECASE)
_PHRASE = re.compile(r"[^\s()=+,;:{}\[\]<>%$]{1,40}(?: [^\s()=+,;:{}\[\]<>%$]{1,40}){1,15}(?<![.!?])")
_PROSE = re.compile(
    r"\b(?:the|your|must|enter|invalid|missing|required|pass(?:word|phrase)s?|secrets?|please|cannot|if|is|for|token|key)\b",
    re.IGNORECASE,
)
# A field of exactly this name holds a password, whatever it is: not a folder, not what passes or which pass it is.
_PASSWORD = re.compile(r"pass|pwd|passwd", re.IGNORECASE)
_NO_PASSWORD_OF_FIELD = re.compile(
    r"true|false|none|null|yes|no|on|off|ok|<.*>|\[.*\]|\*+|[-+]?[0-9]{1,3}(?:\.[0-9]*)?|[~.]{0,2}/.*|[A-Za-z]:\\.*|\.{1,2}"
    r"|(?:forward|backward|fwd|bwd|both|first|second|third|last|one|two|pre|post|train|training|valid|validation|eval|test"
    r"|prefill|decode|fail|failed|pass|passed|skip|skipped|through|default|auto|always|never|optional|required"
    r"|pwd|passwd|password)[-_]?[0-9]?",
    re.IGNORECASE,
)
_WITHOUT_QUOTES = frozenset(("PASS", "PASSWD", "PWD", "TOKEN"))
_PATH = re.compile(r"[~.]{0,2}(?:/[\w.@+-]{1,60}+~?){2,}+(?::.*)?")
# What a format string fills in, and no value in braces, as ODBC writes it: `{self.password!r}`, not `{hunter2}`.
_FIELD = re.compile(r"\{{1,3}[A-Za-z_][A-Za-z_.]{0,80}+(?:\[[^\[\]\n]{0,40}\])?(?:![rsa])?(?::[^{}\s]{0,20})?\}")
_MARKS = re.compile(r"[$<{%*.]")  # without one of them a template is one from its first character on
_PLACES = re.compile(r"CERTS?$|CREDENTIALS$|(?:^|_)CERTS?_|_(?:FILE|DIR|PATH)$")
SETTING = re.compile(
    r"[-+]?[0-9][0-9_.,eE+-]*[KMBGT]?|true|false|none|null|yes|no|on|off|<.*>|\[.*\]|\*+", re.IGNORECASE
)
_SETTING_OF_STRONG = re.compile(r"true|false|none|null|<.*>|\[\]|\*+", re.IGNORECASE)
_RANDOM = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{16,}")
_NETRC = re.compile(r"\bmachine\s+\S+\s+(?:login|user)\s+\S+\s+(?:account\s+\S+\s+)?password\s+(\S{4,})")
_ATTACHED = re.compile(r"-p(?=.*\d)(?:(?=.*[!@#$%^&*?])|(?=.*[a-z])(?=.*[A-Z]))[\w!@#$%^&*?+-]{6,}")
_ATTACHED_WORD = re.compile(r"(?<![\w./-])-p([\w!@#$%^&*?+-]{6,128})(?![\w!@#$%^&*?+=/.:(-])")
# What stands for the value of an option in a help text or a manual.
_METAVAR = re.compile(r"-.*|[A-Z][A-Z_-]*|<.*|(?i:str(?:ing)?|value|text|file|path|prompt|stdin|env)")
# What stands in a list beside the name of a secret: encodings, hashes, versions, files.
_TECHNICAL = re.compile(
    rf"-.*|{_SCHEME.pattern}|(?:base|utf|latin|ascii|iso|cp|rsa|aes|hs|rs|es|int|uint|float|bf|fp|ssh-|ed25519|python|http)[-_]?\d.*"
    r"|[\w-]+\.[a-z]{1,5}\d?|.*[\s()\[\]{}<>=\\].*",
    re.IGNORECASE,
)
_PAT = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[\w+/=-]{8,}")
_DENSE = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+=]{12,}")
# Without quotes, what no word, name or number of a program is like: a part between `-` or `_` with digits at two places
# within, or all of it with a mark. `Tr0ub4dor9xQ`, `p4ssw0rd`, `Summer2024!`; not `Conv2dFused`, `fp8_e4m3fn`.
_WORD = re.compile(r"[\w!@#$%^?~*+=-]{8,}")
_MIXED = re.compile(r"(?=.{8})(?:[^0-9]*+[0-9]++[^0-9]++){2}.*")
_MARKED = re.compile(
    r"(?=[^0-9]*[0-9])\w(?:(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[^!@#$%^?~*]*[!@#$%^?~*]"
    r"|(?=[^A-Za-z]*[A-Za-z])[^!#$^?~]*[!#$^?~]).*"
)
_DIGITS_WITHIN = re.compile(r"[A-Za-z]+[0-9]+[A-Za-z]+")
_NOT_MIXED = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]{8}T[0-9]{6}Z?|[0-9]+(?:x[0-9]+)+")
_DECIDING = 512  # characters of a value, by which it is told
NO_PASSWORD = re.compile(
    r".{0,3}|.*[/\\:].*|\.{1,2}|[\w-]+\.[a-z]{1,5}|(?:bf|fp|tf|int|uint|float|bfloat)\d+[\w-]*|\d+-(?:mixed|true)",
    re.IGNORECASE,
)


def looks_random(value: str) -> bool:
    """Whether nobody would write it by hand: long, letters and digits mixed, no path and no words."""
    return _RANDOM.fullmatch(value) is not None


def is_secret_setting(name: str, value: str) -> bool:
    """Whether a variable or an option of this name and value holds a secret."""
    if name == "pwd":  # no variable of a shell's
        return _is_password(name, value)
    if not value or name.upper() in HARMLESS or _names_a_place(name, value):
        return False
    match strength(name):
        case Strength.STRONG:
            return _SETTING_OF_STRONG.fullmatch(value) is None
        case Strength.LIKELY:
            return SETTING.fullmatch(value) is None or _is_secret_number(name, value)
        case Strength.WEAK:
            return SETTING.fullmatch(value) is None and not _is_pattern(name, value)
    return False


def _is_pattern(name: str, value: str) -> bool:
    """Whether it is of a name that ends as one of a personal access token does, and is none."""
    words = words_of(name)
    return ends_as_a_pat(words) and not any(map(WEAK_WORD.fullmatch, words)) and _PAT.fullmatch(value) is None


def _is_secret_number(name: str, value: str) -> bool:
    """AUTH_TOKEN of ten digits; not `USE_AUTH_TOKEN=1`, `IMG_TOKEN=...` of a vocabulary."""
    least = _LEAST_OF_ACCOUNT if is_of_account(name) else _LEAST_DIGITS
    return value.isdecimal() and len(value) >= least


def _names_a_place(name: str, value: str) -> bool:
    """Where certificates or a file of secrets lie: libraries read SSL_CERT_FILE and its like in every program."""
    return value.startswith(("/", "~", "./")) and _PLACES.search(name.upper().replace("-", "_")) is not None


def found_in(text: str) -> Iterator[Found]:
    """Secrets in a text of any kind: by shape, and by the names that stand before them."""
    yield from _found_in(text)
    yield from found_behind_margins(text, _found_in)


def _found_in(text: str) -> Iterator[Found]:
    yield from find_shapes(text)
    yield from _pairs(text)
    if "-p" in text:
        words = _ATTACHED_WORD.finditer(text)
        yield from (
            Found("password of a command", w[1], w.start(1)) for w in words if is_attached(w[0], of_mysql=False)
        )
    if "machine" in text:
        yield from (Found("password of a netrc", match[1], match.start(1)) for match in _NETRC.finditer(text))


def _pairs(text: str) -> Iterator[Found]:
    """What stands under the name of a secret. Where a value may be longer than it looks, it is found in both lengths:
    the shorter one may be met elsewhere."""
    for value in named_values(text, _is_telling_name):
        head = text[value.start : min(value.end, value.start + _DECIDING)]
        if head.startswith("{") and _FIELD.match(text, value.start):
            continue
        if _is_pair(value.name, head, value.form):
            for end in dict.fromkeys((value.end, value.whole)):
                yield Found(f"value of {value.name[:60]!r}", text[value.start : end], value.start)


def _is_telling_name(name: str) -> bool:
    return bool(strength(name)) or _PASSWORD.fullmatch(name) is not None


def _is_pair(name: str, value: str, form: Form) -> bool:
    """In a text a name says less than in an environment: it may be prose or source code."""
    return len(value) >= 3 and _tells_in(form, name, value) and not _stands_for_another(value)


def _tells_in(form: Form, name: str, value: str) -> bool:
    match form:
        case Form.PLAIN:
            return _tells(name, value, quoted=False)
        case Form.LINE:
            return _tells(name, value, quoted=SETTING.fullmatch(value) is None)
        case Form.QUOTED:
            return _tells(name, value, quoted=True)
        case Form.OPTION:
            return _tells(name, value, quoted=True) and _is_given(name, value)
        case Form.WORD:
            return _tells(name, value, quoted=False) and _is_given(name, value) and not value.isalpha()
        case Form.LISTED:
            return _tells(name, value, quoted=True) and _stands_out(name, value)
        case Form.AMONG:
            return _tells(name, value, quoted=True) and _stands_out(name, value) and _is_dense(value)


def _is_given(name: str, value: str) -> bool:
    """Whether an option is given this value; not `--password=PASSWORD`, `--token, --auth`, `--pass=canonicalize`."""
    if _METAVAR.fullmatch(value) or strength(value):
        return False
    if any(map(SETTING_WORD.fullmatch, words_of(name)[-2:-1])):  # `--pad-token=pad0`
        return looks_random(value)
    if _PASSWORD.fullmatch(name) or _PLACES.search(name.upper().replace("-", "_")):
        return looks_random(value) or (value.isalnum() and not value.isalpha() and len(value) >= LEAST_KNOWN)
    return True


def _stands_out(name: str, value: str) -> bool:
    """Whether one text of several is more than a word: names of fields stand in lists, too."""
    if not strength(last_word(name)) and not own_rules.is_secret_name(name):
        return False
    if len(value) < LEAST_KNOWN or value.isalpha() or strength(value) or _TECHNICAL.fullmatch(value):
        return False
    if strength(name) is Strength.WEAK:
        return _is_dense(value)
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_dense(value: str) -> bool:
    """Whether a part of it is as a token's, long and of letters and digits; not `layer_12_attention_345`."""
    return any(map(_DENSE.fullmatch, re.split(r"[_-]", value)))


def _stands_for_another(value: str) -> bool:
    """Asked last: it takes longest, and a text may have a pair at every other character."""
    has_marks = _MARKS.search(value) is not None
    is_template = TEMPLATE.search(value) if has_marks else TEMPLATE.match(value)
    return is_template is not None or ("/" in value and _PATH.fullmatch(value) is not None)


def _tells(name: str, value: str, *, quoted: bool) -> bool:
    if " " in value:
        return quoted and _is_passphrase(name, value)
    if quoted and _PASSWORD.fullmatch(name) and strength(name) is not Strength.STRONG:
        return _is_password(name, value)
    if not quoted and _is_mixed(name, value):
        return True
    match strength(name):
        case Strength.STRONG:
            return _SETTING_OF_STRONG.fullmatch(value) is None and (quoted or _is_no_code(value))
        case Strength.LIKELY:
            return _is_carried(name, value, quoted=quoted) or _is_likely(name, value, quoted=quoted)
        case Strength.WEAK:
            return _is_carried(name, value, quoted=quoted)
    return False


def _is_password(name: str, value: str) -> bool:
    """`"pass": "hunter"`; not `"pwd": "src/model"`, `"pass": "forward"`."""
    is_folder = name.lower() == "pwd" and "/" in value
    return bool(value) and not is_folder and _NO_PASSWORD_OF_FIELD.fullmatch(value) is None


def _is_mixed(name: str, value: str) -> bool:
    """`pass: Tr0ub4dor9xQ`, `pwd=hunter2abc`, `token=...`; not `token=fp8_e4m3fn`, `pad_token: A1b2C3d4`."""
    words = words_of(name)
    if not words or kind_of(words) not in _WITHOUT_QUOTES or any(map(SETTING_WORD.fullmatch, words[-2:-1])):
        return False
    value = value.rstrip(".:")  # of the sentence
    if _WORD.fullmatch(value) is None or _NOT_MIXED.fullmatch(value) or _TECHNICAL.fullmatch(value):
        return False
    if kind_of(words) != "TOKEN" and _DIGITS_WITHIN.fullmatch(value):
        return True
    return _MARKED.fullmatch(value) is not None or any(map(_MIXED.fullmatch, re.split(r"[_-]", value)))


def _is_passphrase(name: str, value: str) -> bool:
    """Words in quotes that no message is made of."""
    words = words_of(name)
    ends = bool(words) and (kind_of(words) == "PASSPHRASE" or kind_of(words).endswith(("PASSWORD", "PASSWD", "SECRET")))
    return ends and _PHRASE.fullmatch(value) is not None and _PROSE.search(value) is None


def _is_likely(name: str, value: str, *, quoted: bool) -> bool:
    """What is written after SMTP_PASS or ADMIN_TOKEN; not `access_token = "access_token"`, `smtp_auth: login`."""
    if value.isdecimal():
        return _is_secret_number(name, value)
    if not (is_of_account(name) or name.isupper()) or SETTING.fullmatch(value) or not (quoted or _is_no_code(value)):
        return False
    has_digit = any(character.isdigit() for character in value)
    if kind_of(words_of(name)) == "AUTH":
        return has_digit and len(value) >= _LEAST_AUTH and _SCHEME.fullmatch(value) is None
    return len(value) >= (_LEAST_OF_ACCOUNT if has_digit else LEAST_KNOWN) and not strength(value)


def _is_basic(value: str) -> bool:
    """Whether it is a user and a password as the header of HTTP holds them."""
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(value) >= _LEAST_AUTH and re.fullmatch(rb"[!-9;-~]+:[ -~]+", decoded) is not None


def _is_no_code(value: str) -> bool:
    """What stands without quotes may be a name of the program's: `password=password`, `secret: str`."""
    return not re.fullmatch(r".*[(\[].*|[a-z_]+[:.]?|[A-Z][a-zA-Z]*|self\..*|[a-z_]+\.[a-z_.]+", value)


def _is_carried(name: str, value: str, *, quoted: bool) -> bool:
    """`"token": "abc123"`; not `"key": "loss"`, `"eos_token": "eos"`, `key_sha256: 3f78...`."""
    word = last_word(name)
    if not (WEAK_WORD.fullmatch(word) or ends_as_a_pat([word])):
        return False
    short = quoted and word.rstrip("0123456789") not in ID_WORDS and len(value) >= LEAST_KNOWN
    if word == "AUTH" and _is_basic(value):
        return True
    return looks_random(value) or (short and any(character.isdigit() for character in value))


def is_attached(word: str, *, of_mysql: bool) -> bool:
    """`-psecret` of MySQL's programs; elsewhere only what no option is called: `-pS3cret`, not `-parallel`, `-p2p`."""
    if not word.startswith("-p") or word.rstrip("*") == "-p":
        return False
    return of_mysql or (_ATTACHED.fullmatch(word) is not None and NO_PASSWORD.fullmatch(word[2:]) is None)
