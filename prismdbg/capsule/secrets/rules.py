"""Which texts look like a secret: by the name they stand under, and by their own shape. Standard library only.

What the rank writes and what goes into a capsule is searched by these rules. `jobs.capture.secret_rules` adds those of
detect-secrets on the host. No finding ever carries the value into a message: callers name places.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

from prismdbg.capsule.secrets import own_rules
from prismdbg.capsule.secrets.named_values import Form, named_values
from prismdbg.capsule.secrets.shapes import TEMPLATE, Found, find_shapes

REDACTED = "<redacted>"
MOST_ELSEWHERE = 200  # values of one text that are searched for in the rest of it: a text may be one long list
LEAST_KNOWN = 6  # characters: a shorter value is searched for as a word of its own only, for it is part of many others
LEAST_WORD = 4  # characters: a shorter value is not searched for at all
LEAST_NUMBER_KNOWN = 8  # digits


class Strength(IntEnum):
    """How much a name says. WEAK: also the name of settings (`key`, `token`), so the value decides, too.

    LIKELY: it ends as a secret's does (`DB_PASS`, `AUTH_TOKEN`, `SMTP_AUTH`), so a number may be one.
    """

    NONE = 0
    WEAK = 1
    LIKELY = 2
    STRONG = 3


_STRONG = re.compile(
    r"(?:[A-Z0-9]*(?:SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|APIKEY|ACCESSKEY|SECRETKEY|PRIVATEKEY|ACCOUNTKEY|(?:AUTH|ACCESS|API)TOKEN)S?"
    r"|[A-Z0-9]*(?:PASSWD|PSWD|CREDS|PASSCODE|SIGNINGKEY|ENCRYPTKEY|ENCRYPTIONKEY|MNEMONIC|TOTP|BASICAUTH))\d*"
)
_STRONG_AT_END = re.compile(
    r"(?!(?:COM|BY|TRES|LOW|HIGH|BAND|ALL|ONE|TWO|MULTI|SINGLE)PASS|OLDPWD|.*WARDPASS)(?:[A-Z0-9]{2,8}PASS|[A-Z0-9]{0,8}PWD?)\d*"
)
_WEAK = re.compile(
    r"(?:KEYS?|PASS|AUTH|AUTHORIZATION|PRIVATE|COOKIES?|SESSION|SIGNATURE|SIG|PIN|CERT|SALT|DSN|WEBHOOK|JWT|BEARER"
    r"|[A-Z0-9]*TOKENS?)\d*"
)
_KEY_OF = frozenset(
    ("API", "ACCESS", "PRIVATE", "SECRET", "ACCOUNT", "SHARED", "SIGNING", "ENCRYPTION", "MASTER", "SERVICE")
)
_ID_WORDS = frozenset(
    (
        "KEYS",
        "KEY",
        "AUTH",
        "PRIVATE",
        "CERT",
        "SALT",
        "PIN",
        "SESSION",
        "SIG",
        "SIGNATURE",
        "COOKIE",
        "PASS",
        "PAT",
        "PATS",
    )
)
_ENDS = frozenset(("PASS", "TOKEN", "AUTH"))
# What stands before one of them in the name of an account's.
_ACCOUNTS = re.compile(
    r"ACCESS|ACCOUNT|ADMIN|API|APP|AUTH|AWS|AZURE|BEARER|BOT|CI|CLIENT|CLOUD|COMET|DATABASE|DB|DEPLOY|DISCORD"
    r"|DOCKER|EMAIL|FTP|GCP|GH|GIT|GITHUB|GITLAB|HF|HTTP|HUB|HUGGINGFACE|IMAP|JIRA|LDAP|LOGIN|MAIL|MLFLOW|MONGO"
    r"|MYSQL|NEPTUNE|NPM|OAUTH|PERSONAL|PG|POSTGRES|PRIVATE|PROXY|PYPI|REDIS|REFRESH|REGISTRY|ROOT|SECRET|SERVICE"
    r"|SLACK|SMTP|SQL|SSH|SUDO|TELEGRAM|USER|VAULT|VPN|WANDB|WIFI"
)
# What stands before one of them in the name of a setting: of a tokenizer, of a filter, of a compiler, of a count.
_SETTINGS = re.compile(
    r"ADD|ALL|AUDIO|BACKWARD|BAND|BEGIN|BLANK|BOS|BWD|BY|CLASS|CLS|COM|COUNT|CURR|CURRENT|DECODER|DUMMY|EACH|END"
    r"|EOD|EOM|EOS|EOT|FIRST|FORWARD|FUSION|FWD|GRAPH|HIGH|IMAGE|INPUT|LAST|LOW|MASK|MAX|MEAN|MIN|MULTI|N|NEW"
    r"|NEWLINE|NEXT|NO|NUM|ONE|OOV|OUTPUT|PAD|PER|PREFIX|PREV|PROMPT|REWRITE|SECOND|SEP|SINGLE|SOS|SPACE|SPECIAL"
    r"|START|STEP|STOP|SUFFIX|TEST|THINK|TOTAL|TWO|UNK|USE|VIDEO|VISION|WORD"
)
_LEAST_OF_ACCOUNT = 4  # digits, or characters in a text
_LEAST_DIGITS = 7  # of any other name: the numbers of a vocabulary are smaller
_LEAST_AUTH = 8
_SCHEME = re.compile(r"(?:o|open|m)?auth.*|scram.*|sha.*|md5.*|.*krb.*|ldap.*|.*tls.*|x509.*|v\d.*", re.IGNORECASE)
_PHRASE = re.compile(r"[^\s()=+,;:{}\[\]<>%$]{1,40}(?: [^\s()=+,;:{}\[\]<>%$]{1,40}){1,15}(?<![.!?])")
_PROSE = re.compile(
    r"\b(?:the|your|must|enter|invalid|missing|required|pass(?:word|phrase)s?|secrets?|please|cannot|if|is|for|token|key)\b",
    re.IGNORECASE,
)
# Names that the rules above would take and that hold a place or a setting, no secret.
_HARMLESS = frozenset(
    {
        "PWD", "OLDPWD", "SSH_AUTH_SOCK", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS",
        "XDG_SESSION_DESKTOP", "DESKTOP_SESSION", "SESSION_MANAGER", "DBUS_SESSION_BUS_ADDRESS", "GDMSESSION",
    }
)  # fmt: skip
# A field of exactly this name holds a password, whatever it is: not a folder, not what passes or which pass it is.
_PASSWORD = re.compile(r"pass|pwd|passwd", re.IGNORECASE)
_NO_PASSWORD_OF_FIELD = re.compile(
    r"true|false|none|null|yes|no|on|off|ok|<.*>|\[.*\]|\*+|[-+]?[0-9]{1,3}(?:\.[0-9]*)?|[~.]{0,2}/.*|[A-Za-z]:\\.*|\.{1,2}"
    r"|(?:forward|backward|fwd|bwd|both|first|second|third|last|one|two|pre|post|train|training|valid|validation|eval|test"
    r"|prefill|decode|fail|failed|pass|passed|skip|skipped|through|default|auto|always|never|optional|required"
    r"|pwd|passwd|password)[-_]?[0-9]?",
    re.IGNORECASE,
)
_PATH = re.compile(r"[~.]{0,2}(?:/[\w.@+-]{1,60}+~?){2,}+(?::.*)?")
# What a format string fills in, and no value in braces, as ODBC writes it: `{self.password!r}`, not `{hunter2}`.
_FIELD = re.compile(r"\{{1,3}[A-Za-z_][A-Za-z_.]{0,80}+(?:\[[^\[\]\n]{0,40}\])?(?:![rsa])?(?::[^{}\s]{0,20})?\}")
_MARKS = re.compile(r"[$<{%*.]")  # without one of them a template is one from its first character on
_PLACES = re.compile(r"CERTS?$|CREDENTIALS$|(?:^|_)CERTS?_|_(?:FILE|DIR|PATH)$")
_SETTING = re.compile(
    r"[-+]?[0-9][0-9_.,eE+-]*[KMBGT]?|true|false|none|null|yes|no|on|off|<.*>|\[.*\]|\*+", re.IGNORECASE
)
_SETTING_OF_STRONG = re.compile(r"true|false|none|null|<.*>|\[\]|\*+", re.IGNORECASE)
_COMMON = re.compile(rf"{_SETTING.pattern}|[A-Za-z]{{1,11}}|[~.]?/[\w/.-]*", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([-+~]{0,2}[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_RANDOM = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{16,}")
_NETRC = re.compile(r"\bmachine\s+\S+\s+(?:login|user)\s+\S+\s+(?:account\s+\S+\s+)?password\s+(\S{4,})")
_MYSQL = re.compile(r"(?:.*/)?(?:mysql|mariadb|sshpass)[\w-]*")  # its -pX is a password, whatever X is
_ATTACHED = re.compile(r"-p(?=.*\d)(?:(?=.*[!@#$%^&*?])|(?=.*[a-z])(?=.*[A-Z]))[\w!@#$%^&*?+-]{6,}")
_ATTACHED_WORD = re.compile(r"(?<![\w./-])-p([\w!@#$%^&*?+-]{6,128})(?![\w!@#$%^&*?+=/.:(-])")
_USER = re.compile(r"[^\s:/]+:(?!\d{1,5}$)[^\s/]{3,}")
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
_DECIDING = 512  # characters of a value, by which it is told
_NO_PASSWORD = re.compile(
    r".{0,3}|.*[/\\:].*|\.{1,2}|[\w-]+\.[a-z]{1,5}|(?:bf|fp|tf|int|uint|float|bfloat)\d+[\w-]*|\d+-(?:mixed|true)",
    re.IGNORECASE,
)


Finder = Callable[[str], Iterable[Found]]


def strength(name: str) -> Strength:
    """How much the name of a variable, an option or a field says that its value is secret."""
    return Strength.STRONG if own_rules.is_secret_name(name) else _strength(name)


@lru_cache(maxsize=4096)
def _strength(name: str) -> Strength:
    words = _words(name)
    if "PUBLIC" in words or name.upper() in _HARMLESS:
        return Strength.NONE
    pairs = (first in _KEY_OF and second in ("KEY", "KEYS") for first, second in pairwise(words))
    if any(map(_STRONG.fullmatch, words)) or any(pairs) or (words and _STRONG_AT_END.fullmatch(words[-1])):
        return Strength.STRONG
    if len(words) > 1 and _kind(words) in _ENDS and not _SETTINGS.fullmatch(words[-2]):
        return Strength.LIKELY
    return Strength.WEAK if any(map(_WEAK.fullmatch, words)) or _ends_as_a_pat(words) else Strength.NONE


def _words(name: str) -> list[str]:
    """`dbPass`, `--db-pass`, `DB_PASS`: DB and PASS."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-+~_"))
    return [word for word in re.split(r"[^A-Z0-9]+", spaced.upper()) if word]


def _ends_as_a_pat(words: Sequence[str]) -> bool:
    """Personal access token: `GIT_PAT`, `--pat`. It also is what programs call a pattern."""
    return bool(words) and _kind(words) in ("PAT", "PATS")


def _kind(words: Sequence[str]) -> str:
    return words[-1].rstrip("0123456789")


def _is_of_account(name: str) -> bool:
    return any(_ACCOUNTS.fullmatch(word) for word in _words(name)[-2:-1])


def looks_random(value: str) -> bool:
    """Whether nobody would write it by hand: long, letters and digits mixed, no path and no words."""
    return _RANDOM.fullmatch(value) is not None


def is_secret_setting(name: str, value: str) -> bool:
    """Whether a variable or an option of this name and value holds a secret."""
    if name == "pwd":  # no variable of a shell's
        return _is_password(name, value)
    if not value or name.upper() in _HARMLESS or _names_a_place(name, value):
        return False
    match strength(name):
        case Strength.STRONG:
            return _SETTING_OF_STRONG.fullmatch(value) is None
        case Strength.LIKELY:
            return _SETTING.fullmatch(value) is None or _is_secret_number(name, value)
        case Strength.WEAK:
            return _SETTING.fullmatch(value) is None and not _is_pattern(name, value)
    return False


def _is_pattern(name: str, value: str) -> bool:
    """Whether it is of a name that ends as one of a personal access token does, and is none."""
    words = _words(name)
    return _ends_as_a_pat(words) and not any(map(_WEAK.fullmatch, words)) and _PAT.fullmatch(value) is None


def _is_secret_number(name: str, value: str) -> bool:
    """AUTH_TOKEN of ten digits; not `USE_AUTH_TOKEN=1`, `IMG_TOKEN=...` of a vocabulary."""
    least = _LEAST_OF_ACCOUNT if _is_of_account(name) else _LEAST_DIGITS
    return value.isdecimal() and len(value) >= least


def looks_secret(name: str, value: str) -> bool:
    """Of an environment variable: its name, or whatever is in its value."""
    if not value:
        return False
    return (
        is_secret_setting(name, value) or any(found_in(value)) or bool(redact_arguments(["", *value.split()]).redacted)
    )


def _names_a_place(name: str, value: str) -> bool:
    """Where certificates or a file of secrets lie: libraries read SSL_CERT_FILE and its like in every program."""
    return value.startswith(("/", "~", "./")) and _PLACES.search(name.upper().replace("-", "_")) is not None


def found_in(text: str) -> Iterator[Found]:
    """Secrets in a text of any kind: by shape, and by the names that stand before them."""
    yield from find_shapes(text)
    yield from _pairs(text)
    if "-p" in text:
        words = _ATTACHED_WORD.finditer(text)
        yield from (
            Found("password of a command", w[1], w.start(1)) for w in words if _is_attached(w[0], of_mysql=False)
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
            return _tells(name, value, quoted=_SETTING.fullmatch(value) is None)
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
    if any(map(_SETTINGS.fullmatch, _words(name)[-2:-1])):  # `--pad-token=pad0`
        return looks_random(value)
    if _PASSWORD.fullmatch(name) or _PLACES.search(name.upper().replace("-", "_")):
        return looks_random(value) or (value.isalnum() and not value.isalpha() and len(value) >= LEAST_KNOWN)
    return True


def _stands_out(name: str, value: str) -> bool:
    """Whether one text of several is more than a word: names of fields stand in lists, too."""
    if not strength(_last_word(name)) and not own_rules.is_secret_name(name):
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


def _is_passphrase(name: str, value: str) -> bool:
    """Words in quotes that no message is made of."""
    words = _words(name)
    ends = bool(words) and (_kind(words) == "PASSPHRASE" or _kind(words).endswith(("PASSWORD", "PASSWD", "SECRET")))
    return ends and _PHRASE.fullmatch(value) is not None and _PROSE.search(value) is None


def _is_likely(name: str, value: str, *, quoted: bool) -> bool:
    """What is written after SMTP_PASS or ADMIN_TOKEN; not `access_token = "access_token"`, `smtp_auth: login`."""
    if value.isdecimal():
        return _is_secret_number(name, value)
    if not (_is_of_account(name) or name.isupper()) or _SETTING.fullmatch(value) or not (quoted or _is_no_code(value)):
        return False
    has_digit = any(character.isdigit() for character in value)
    if _kind(_words(name)) == "AUTH":
        return has_digit and len(value) >= _LEAST_AUTH and _SCHEME.fullmatch(value) is None
    return len(value) >= (_LEAST_OF_ACCOUNT if has_digit else LEAST_KNOWN) and not strength(value)


def _is_basic(value: str) -> bool:
    """Whether it is a user and a password as the header of HTTP holds them."""
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(value) >= _LEAST_AUTH and re.fullmatch(rb"[!-9;-~]+:[ -~]+", decoded) is not None


def _last_word(name: str) -> str:
    return re.split(r"[^A-Z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper())[-1]


def _is_no_code(value: str) -> bool:
    """What stands without quotes may be a name of the program's: `password=password`, `secret: str`."""
    return not re.fullmatch(r".*[(\[].*|[a-z_]+[:.]?|[A-Z][a-zA-Z]*|self\..*|[a-z_]+\.[a-z_.]+", value)


def _is_carried(name: str, value: str, *, quoted: bool) -> bool:
    """`"token": "abc123"`; not `"key": "loss"`, `"eos_token": "eos"`, `key_sha256: 3f78...`."""
    word = _last_word(name)
    if not (_WEAK.fullmatch(word) or _ends_as_a_pat([word])):
        return False
    short = quoted and word.rstrip("0123456789") not in _ID_WORDS and len(value) >= LEAST_KNOWN
    if word == "AUTH" and _is_basic(value):
        return True
    return looks_random(value) or (short and any(character.isdigit() for character in value))


def redact_text(text: str, known: Iterable[str] = (), find: Finder = found_in) -> str:
    """The text with REDACTED in the place of every secret that `find` sees and of every value in `known`."""
    return hidden(text, spans(text, known, find), lambda _: REDACTED)


def hidden(text: str, places: Iterable[tuple[int, int]], shown: Callable[[str], str]) -> str:
    """The text with what `shown` makes of it in the place of each part from start to stop; `places`: as `spans`."""
    parts, end = [], 0
    for start, stop in places:
        parts += [text[end:start], shown(text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def is_redacted_of(redacted: str, text: str) -> bool:
    """Whether `redacted` is the text with nothing but values replaced by REDACTED, none of them empty."""
    return redacted == text if REDACTED not in redacted else bool(redacted_parts(redacted, text))


def redacted_parts(redacted: str, text: str) -> list[tuple[int, int]]:
    """Start and stop of each part of the text that `redacted` has REDACTED for; empty if it is not of this text."""
    first, *between = redacted.split(REDACTED)
    if not between or not text.startswith(first):
        return []
    last, at, parts = between.pop(), len(first), []
    for part in between:
        start = at
        if (at := text.find(part, start + 1)) < 0:
            return []
        parts.append((start, at))
        at += len(part)
    end = len(text) - len(last)
    return [*parts, (at, end)] if end > at and text.endswith(last) else []


def spans(text: str, known: Iterable[str] = (), find: Finder = found_in) -> list[tuple[int, int]]:
    """Where secrets stand in a text, in order, none within another; all places of a value that is long enough."""
    found = list(find(text))
    places = [(f.start, f.start + len(f.value)) for f in found if f.start >= 0]
    unplaced = sorted({f.value for f in found if f.start < 0})[:MOST_ELSEWHERE]
    places += [match.span() for value in unplaced for match in re.finditer(re.escape(value), text)]
    for value in {*sorted({f.value for f in found if len(f.value) >= LEAST_KNOWN})[:MOST_ELSEWHERE], *known}:
        places += [match.span() for match in _wherever(value).finditer(text)]
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(places):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


@lru_cache(maxsize=1024)
def _wherever(value: str) -> re.Pattern[str]:
    """A value that others may hold by chance is met as a word of its own only, and not as a part of a path."""
    pattern = re.escape(value)
    return re.compile(pattern if _is_telling(value) else rf"(?<![\w./\\-]){pattern}(?![\w/\\-]|\.\w)")


def stands_in(value: str, text: str) -> bool:
    """Whether a known value is met in a text."""
    return value in text and _wherever(value).search(text) is not None


def known_values(environ: Mapping[str, str], words: Sequence[str]) -> tuple[str, ...]:
    """The secrets of a process that texts are searched for: of its variables and of its command line.

    Among them are words (`postgres`), of variables whose name ends as a secret's does: of `DB_PASSWORD`, not of
    `CREDENTIAL_HELPER`. `worth_a_search` gives those that say something wherever they are met.
    """
    secret = {name: value for name, value in environ.items() if is_secret_setting(name, value)}
    values = [v for name, v in secret.items() if _is_sure(name, v) and (_is_telling(v) or strength(_last_word(name)))]
    values += [found.value for value in environ.values() for found in found_in(value)]
    return words_or_more([*values, *(value for _, value in _secret_words(words))])


def words_or_more(values: Iterable[str]) -> tuple[str, ...]:
    """Of `values` those that can be masked in a text: not `true`, not 4096, not `x`."""
    return tuple(sorted({v for v in values if _is_telling(v) or _is_word(v)}))


def worth_a_search(values: Iterable[str]) -> tuple[str, ...]:
    """Of `values` those that say something where they are met: not `true`, not 4096, not `postgres`."""
    return tuple(sorted({v for v in values if _is_telling(v)}))


def _is_telling(value: str) -> bool:
    return len(value) >= LEAST_KNOWN and not _is_common(value) and "\0" not in value


def _is_word(value: str) -> bool:
    return len(value) >= LEAST_WORD and _SETTING.fullmatch(value) is None and "\0" not in value and "/" not in value


def _is_common(value: str) -> bool:
    return _COMMON.fullmatch(value) is not None and not (value.isdecimal() and len(value) >= LEAST_NUMBER_KNOWN)


def _is_sure(name: str, value: str) -> bool:
    return strength(name) >= Strength.LIKELY or looks_random(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`variables` without what looks like a secret; `redacted` names what was left out, sorted.

    A replay sets `variables`; reading one of `redacted` there is an error that says so.
    """

    variables: Mapping[str, str]
    redacted: tuple[str, ...]


def redact(environ: Mapping[str, str], known: Iterable[str] = ()) -> Environment:
    """`known`: values that no variable may hold, whatever its name; words among them are no reason to take one out."""
    known = worth_a_search(known)
    secret = {n for n, value in environ.items() if looks_secret(n, value) or any(k in value for k in known)}
    return Environment(
        variables={name: value for name, value in environ.items() if name not in secret},
        redacted=tuple(sorted(secret)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """`words` with `REDACTED` in the place of what looks like a secret; `redacted` says of which options."""

    words: tuple[str, ...]
    redacted: tuple[str, ...]


def redact_arguments(words: Sequence[str], known: Iterable[str] = (), find: Finder = found_in) -> Arguments:
    """Of a command line; its first word is the program."""
    secret = dict(_secret_words(words))
    known = worth_a_search(known)
    kept, redacted = list(words[:1]), []
    for position, (option, word) in enumerate(pairwise(words), start=1):
        name = _option_of(option, word) or f"argument {position}"
        shown = redact_text(word, known, find)
        if (value := secret.get(position)) is not None:
            shown = word[: len(word) - len(value)] + REDACTED
            name = "-p" if word == f"-p{value}" else name
        kept.append(shown)
        redacted += [name] if shown != word else []
    return Arguments(words=tuple(kept), redacted=tuple(redacted))


def _secret_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Position and value of what an option says is secret; the value is the end of the word."""
    of_mysql = any(map(_MYSQL.fullmatch, words[:2]))  # a line of its own, or what a script is to start
    for position, (option, word) in enumerate(pairwise(words), start=1):
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is not None and _is_secret_option(assigned[1], assigned[2]):
            yield position, assigned[2]
        elif option.startswith("-") and not word.startswith("-") and _is_secret_after(option, word):
            yield position, word
        elif _is_attached(word, of_mysql=of_mysql):
            yield position, word.removeprefix("-p")


def _is_attached(word: str, *, of_mysql: bool) -> bool:
    """`-psecret` of MySQL's programs; elsewhere only what no option is called: `-pS3cret`, not `-parallel`, `-p2p`."""
    if not word.startswith("-p") or len(word) < 3:
        return False
    return of_mysql or (_ATTACHED.fullmatch(word) is not None and _NO_PASSWORD.fullmatch(word[2:]) is None)


def _option_of(option: str, word: str) -> str:
    """The name that a word of the command line stands under; empty where there is none."""
    assigned = _ASSIGNMENT.fullmatch(word)
    if assigned is not None and assigned[1].startswith("-"):
        return assigned[1]
    if assigned is not None and strength(assigned[1]):
        return assigned[1]
    return option if option.startswith("-") and "=" not in option and not word.startswith("-") else ""


def _is_secret_after(option: str, word: str) -> bool:
    if option == "-p":
        return not (_SETTING.fullmatch(word) or _NO_PASSWORD.fullmatch(word))
    if option in ("-u", "--user"):
        return _USER.fullmatch(word) is not None
    return "=" not in option and _is_secret_option(option, word)


def _is_secret_option(option: str, value: str) -> bool:
    """As of a variable, but a program has options of its own: `--token-embedding learned`, `--sort-key loss`."""
    if not is_secret_setting(option.lstrip("-+~"), value):
        return False
    if strength(option) is Strength.STRONG:
        return True
    word = _last_word(option)
    is_key = word.rstrip("0123456789") in ("KEY", "KEYS")
    return (_WEAK.fullmatch(word) is not None or _ends_as_a_pat([word])) and not (
        is_key and re.fullmatch(r"[A-Za-z_./-]+|.{0,7}", value)
    )
