"""Which files hold credentials, told by their names: their content stays out of a capsule. Touches no file."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_NAMES = re.compile(
    r"[._]netrc|\.env(?:\.(?!example$|sample$|template$|dist$).*)?|\.envrc|\.git-credentials|\.pypirc|\.pgpass|\.my\.cnf"
    r"|\.mylogin\.cnf|\.npmrc|\.yarnrc\.yml|\.htpasswd|\.dockercfg|\.dockerconfigjson|\.s3cfg|\.boto|\.databrickscfg"
    r"|\.vault-token|\.modal\.toml|\.comet\.config|\.cookies?|kaggle\.json|credentials(?:\.(?:json|ya?ml|toml|ini|db))?"
    r"|secrets?\.(?:json|ya?ml|toml|ini|env)|application_default_credentials\.json|client_secrets?.*\.json"
    r"|service[-_]account.*\.json|stored_tokens|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|(?!(?:.*[._-])?(?:example|sample|template|dist)\.).+\.env|token\.txt|passwords?(?:\.txt)?|api[-_]?keys?\.txt"
    r"|\.?(?:hf|huggingface|wandb|github|gh|openai|api|auth|access)[-_](?:token|key)(?:\.txt)?"
    r"|(?:.*[-_])?(?:gcp|gcloud|google|sa|service[-_]?account)[-_](?:.*[-_])?(?:key|credentials?)s?\.json"
    r"|(?:terraform|.*\.auto)\.tfvars(?:\.json)?|(?:.*\.)?kubeconfig(?:\.ya?ml)?"
    r"|rclone\.conf|pip\.conf|.*\.(?:key|p12|pfx|jks|keystore|kdbx|ppk)",
    re.IGNORECASE,
)
_PLACES = re.compile(
    r"/\.(?:aws|ssh|gnupg|azure|kube|kaggle|snowflake|oci|secrets?)/|/\.docker/config\.json$|/containers/auth\.json$|/\.huggingface/token$"
    r"|/huggingface/token$|/\.config/(?:gcloud|gh|op|age|sops|rclone|pip|wandb|openai|anthropic)/"
    r"|/\.cargo/credentials|/\.terraform\.d/|/run/secrets/|^/etc/(?:g?shadow|ssh|ssl/private|security)/?"
    r"|/\.streamlit/secrets\.toml$|/\.condarc$|/\.password-store/|/\.local/share/keyrings/"
)
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth")
_CACHES = ("/.cache/", "/.local/lib/", "/.local/share/")
PRIVATE_BYTES = 1 << 20


def is_credential(path: str) -> bool:
    """Whether the name alone says that the file holds credentials."""
    return _NAMES.fullmatch(PurePosixPath(path).name) is not None or _PLACES.search(path) is not None


def is_private(path: str, mode: int, size_bytes: int, homes: tuple[str, ...]) -> bool:
    """Whether it is a small dotfile below somebody's home that nobody else may read. Code and caches are none."""
    if mode & 0o077 or size_bytes > PRIVATE_BYTES or path.endswith(_CODE):
        return False
    inside = next((path[len(home) :] for home in homes if path.startswith(f"{home}/.")), "")
    return bool(inside) and not inside.startswith(_CACHES)


def holds_a_key(head: bytes) -> bool:
    """Whether a file begins as a private key does."""
    return re.match(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY", head) is not None
