"""How much the name of a variable, an option or a field says that its value is a secret. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

from prismdbg.capsule.secrets import own_rules


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
WEAK_WORD = re.compile(
    r"(?:KEYS?|PASS|AUTH|AUTHORIZATION|PRIVATE|COOKIES?|SESSION|SIGNATURE|SIG|PIN|CERT|SALT|DSN|WEBHOOK|JWT|BEARER"
    r"|[A-Z0-9]*TOKENS?)\d*"
)
_KEY_OF = frozenset(
    ("API", "ACCESS", "PRIVATE", "SECRET", "ACCOUNT", "SHARED", "SIGNING", "ENCRYPTION", "MASTER", "SERVICE")
)
ID_WORDS = frozenset(
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
SETTING_WORD = re.compile(
    r"ADD|ALL|AUDIO|BACKWARD|BAND|BEGIN|BLANK|BOS|BWD|BY|CLASS|CLS|COM|COUNT|CURR|CURRENT|DECODER|DUMMY|EACH|END"
    r"|EOD|EOM|EOS|EOT|FIRST|FORWARD|FUSION|FWD|GRAPH|HIGH|IMAGE|INPUT|LAST|LOW|MASK|MAX|MEAN|MIN|MULTI|N|NEW"
    r"|NEWLINE|NEXT|NO|NUM|ONE|OOV|OUTPUT|PAD|PER|PREFIX|PREV|PROMPT|REWRITE|SECOND|SEP|SINGLE|SOS|SPACE|SPECIAL"
    r"|START|STEP|STOP|SUFFIX|TEST|THINK|TOTAL|TWO|UNK|USE|VIDEO|VISION|WORD"
)
# Names that the rules above would take and that hold a place or a setting, no secret.
HARMLESS = frozenset(
    {
        "PWD", "OLDPWD", "SSH_AUTH_SOCK", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS",
        "XDG_SESSION_DESKTOP", "DESKTOP_SESSION", "SESSION_MANAGER", "DBUS_SESSION_BUS_ADDRESS", "GDMSESSION",
    }
)  # fmt: skip


def strength(name: str) -> Strength:
    """How much the name of a variable, an option or a field says that its value is secret."""
    return Strength.STRONG if own_rules.is_secret_name(name) else _strength(name)


@lru_cache(maxsize=4096)
def _strength(name: str) -> Strength:
    words = words_of(name)
    if "PUBLIC" in words or name.upper() in HARMLESS:
        return Strength.NONE
    pairs = (first in _KEY_OF and second in ("KEY", "KEYS") for first, second in pairwise(words))
    if any(map(_STRONG.fullmatch, words)) or any(pairs) or (words and _STRONG_AT_END.fullmatch(words[-1])):
        return Strength.STRONG
    if len(words) > 1 and kind_of(words) in _ENDS and not SETTING_WORD.fullmatch(words[-2]):
        return Strength.LIKELY
    return Strength.WEAK if any(map(WEAK_WORD.fullmatch, words)) or ends_as_a_pat(words) else Strength.NONE


def words_of(name: str) -> list[str]:
    """`dbPass`, `--db-pass`, `DB_PASS`: DB and PASS."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-+~_"))
    return [word for word in re.split(r"[^A-Z0-9]+", spaced.upper()) if word]


def ends_as_a_pat(words: Sequence[str]) -> bool:
    """Personal access token: `GIT_PAT`, `--pat`. It also is what programs call a pattern."""
    return bool(words) and kind_of(words) in ("PAT", "PATS")


def kind_of(words: Sequence[str]) -> str:
    return words[-1].rstrip("0123456789")


def is_of_account(name: str) -> bool:
    return any(_ACCOUNTS.fullmatch(word) for word in words_of(name)[-2:-1])


def last_word(name: str) -> str:
    return re.split(r"[^A-Z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper())[-1]
