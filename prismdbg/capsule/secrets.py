"""Which environment variables look like a secret. A capsule carries the others; of these, only the names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

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
    r"://[^/\s:@]*:[^/\s@]+@"  # a password in a URL
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
    return _VALUES.search(value) is not None


def _names_a_place(name: str, value: str) -> bool:
    """Where certificates or a file of secrets lie: libraries read SSL_CERT_FILE and its like in every program."""
    return value.startswith("/") and _PLACES.search(name.upper()) is not None


def redact(environ: Mapping[str, str]) -> Environment:
    secret = {name for name, value in environ.items() if looks_secret(name, value)}
    return Environment(
        variables={name: value for name, value in environ.items() if name not in secret},
        redacted=tuple(sorted(secret)),
    )
