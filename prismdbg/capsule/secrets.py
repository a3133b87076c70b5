"""Which environment variables and arguments look like a secret. A capsule carries the others; of these, the names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# words of a name, split at `_`, `-` and `.`: KEY alone, the others also at the end of a word (HFTOKEN)
_WORDS = re.compile(
    r"(?:^|[_.-])(?:"
    r"KEY|KEYS|AUTH|PRIVATE|COOKIE|COOKIES|SESSION|SIGNATURE|PWD|PASS|PIN|CERT|SALT|"
    r"[A-Z0-9]*(?:TOKEN|TOKENS|SECRET|SECRETS|PASSWORD|PASSWORDS|PASSWD|PASSPHRASE|"
    r"CREDENTIAL|CREDENTIALS|CREDS|APIKEY|ACCESSKEY|PRIVATEKEY)"
    r")\d*(?=$|[_.-])"
)
# Names that the rule above would take and that hold a place or a setting, no secret.
_HARMLESS = frozenset(
    {
        "PWD",
        "OLDPWD",
        "SSH_AUTH_SOCK",
        "XDG_SESSION_ID",
        "XDG_SESSION_TYPE",
        "XDG_SESSION_CLASS",
        "DESKTOP_SESSION",
    }
)
_PLACES = re.compile(r"CERTS?$|(?:^|_)CERTS?_|_(?:FILE|DIR|PATH)$")
_VALUES = re.compile(
    r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"  # a password in a URL
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"  # GitHub
    r"|\bglpat-[A-Za-z0-9_-]{18,}"  # GitLab
    r"|\bhf_[A-Za-z0-9]{30,}"  # Hugging Face
    r"|\bsk-[A-Za-z0-9_-]{20,}"  # OpenAI and others
    r"|\bxox[abposr]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\bAIza[A-Za-z0-9_-]{35}"  # Google
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\."  # JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b[Bb]earer [A-Za-z0-9._~+/-]{16,}"
)

# `--api-key=x`, `+db.password=x`; and what is a setting whatever its name: --max-tokens 4096, --pad-token=<pad>
_ASSIGNMENT = re.compile(r"([-+~]{0,2}[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_SETTING = re.compile(r"[-+]?[0-9][0-9_.,eE+-]*[KMBGT]?|true|false|none|null|yes|no|on|off|<.*>|\[.*\]", re.IGNORECASE)
_NEVER_A_SETTING = re.compile(r"PASSW|PASSPHRASE|SECRET|CREDENTIAL|APIKEY|API[_.-]KEY")
REDACTED = "<redacted>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`variables` without what looks like a secret; `redacted` names what was left out, sorted.

    A replay sets `variables`; reading one of `redacted` there is an error that says so.
    """

    variables: Mapping[str, str]
    redacted: tuple[str, ...]


def looks_secret(name: str, value: str) -> bool:
    if not value:
        return False
    if name.upper() not in _HARMLESS and _WORDS.search(name.upper()) and not _names_a_place(name, value):
        return True
    return _VALUES.search(value) is not None or bool(redact_arguments(["", *value.split()]).redacted)


def _names_a_place(name: str, value: str) -> bool:
    """Where certificates or a file of secrets lie: libraries read SSL_CERT_FILE and its like in every program."""
    return value.startswith("/") and _PLACES.search(name.upper()) is not None


def redact(environ: Mapping[str, str]) -> Environment:
    secret = {name for name, value in environ.items() if looks_secret(name, value)}
    return Environment(
        variables={name: value for name, value in environ.items() if name not in secret},
        redacted=tuple(sorted(secret)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """`words` with `REDACTED` in the place of what looks like a secret; `redacted` says of which options."""

    words: tuple[str, ...]
    redacted: tuple[str, ...]


def redact_arguments(words: Sequence[str]) -> Arguments:
    """Of a command line; its first word is the program."""
    kept, redacted = list(words[:1]), []
    for position, (option, word) in enumerate(pairwise(words), start=1):
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is not None and _is_secret_option(assigned[1], assigned[2]):
            name, shown = assigned[1], f"{assigned[1]}={REDACTED}"
        elif option.startswith("-") and not word.startswith("-") and _is_secret_option(option, word):
            name, shown = option, REDACTED
        else:
            name, shown = f"argument {position}", _VALUES.sub(REDACTED, word)
        kept.append(shown)
        redacted += [name] if shown != word else []
    return Arguments(words=tuple(kept), redacted=tuple(redacted))


def _is_secret_option(option: str, value: str) -> bool:
    name = option.lstrip("-+~").upper()
    if not value or "=" in name or name in _HARMLESS or _names_a_place(name, value):
        return False
    if _SETTING.fullmatch(value) and not _NEVER_A_SETTING.search(name):
        return False
    return _WORDS.search(name) is not None
