"""What looks like a secret stays out of a capsule; what a replay needs stays in."""

from __future__ import annotations

import pytest

from prismdbg.capsule.secrets import looks_secret, redact


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "HF_TOKEN", "HFTOKEN",
        "GITHUB_TOKEN", "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "POSTGRES_PASSWORD", "my_secret", "CLIENT_SECRETS",
        "GOOGLE_APPLICATION_CREDENTIALS", "DOCKER_AUTH_CONFIG", "npm_config_//x/:_authToken", "SSH_KEY", "TOKEN2",
        "PRIVATE_KEY", "SSH_PASSPHRASE", "APIKEY", "COOKIE",
    ],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert looks_secret(name, "value")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/work"),
        ("OLDPWD", "/"),
        ("RANK", "3"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("KEYBOARD", "us"),
        ("MONKEYPATCH", "1"),
        ("PASSTHROUGH", "1"),
        ("COMPASS_DIR", "/x"),
        ("SSH_AUTH_SOCK", "/run/agent.sock"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("PYTHONHASHSEED", "0"),
        ("OMP_NUM_THREADS", "1"),
        ("NCCL_DEBUG", "INFO"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("LS_COLORS", "rs=0:di=01;34"),
        ("HTTP_PROXY", "http://proxy:3128"),
        ("URL", "https://host/path:with@signs"),
        ("HF_TOKEN", ""),
        ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
        ("SSL_CERT_DIR", "/etc/ssl/certs"),
        ("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"),
        ("POSTGRES_PASSWORD_FILE", "/run/secrets/password"),
    ],
)
def test_what_a_replay_needs(name: str, value: str) -> None:
    assert not looks_secret(name, value)


@pytest.mark.parametrize(
    "value",
    [
        "https://user:hunter2@host/path",
        "postgresql://me:pw@db:5432/x",
        "redis://:pw@host",
        "AKIA" + "A1" * 8,
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1_" * 12,
        "glpat-" + "a1" * 10,
        "hf_" + "aB" * 17,
        "--key sk-" + "ab1" * 10,
        "xoxb-" + "1" * 12,
        "eyJhbGciOiJI.eyJzdWIiOiIx.sig",
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "Authorization: Bearer abcdefghijklmnop",
    ],
)
def test_secret_values_under_any_name(value: str) -> None:
    assert looks_secret("SETTING", value)


def test_redaction_keeps_the_rest_and_names_what_went() -> None:
    environment = redact({"RANK": "0", "WANDB_API_KEY": "k", "B_TOKEN": "t", "DATA": "https://u:p@h/x"})
    assert environment.variables == {"RANK": "0"}
    assert environment.redacted == ("B_TOKEN", "DATA", "WANDB_API_KEY")
    assert all(word not in repr(environment) for word in ("'k'", "'t'", "u:p"))
