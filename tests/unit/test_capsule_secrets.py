"""What looks like a secret stays out of a capsule; what a replay needs stays in."""

from __future__ import annotations

import pytest

from prismdbg.capsule.secrets import REDACTED, looks_secret, redact, redact_arguments


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


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--api-key=abc --lr 0.1", f"--api-key={REDACTED} --lr 0.1"),
        ("--token abc --steps 3", f"--token {REDACTED} --steps 3"),
        ("--hf_token=hf", f"--hf_token={REDACTED}"),
        ("+logger.password=x=y", f"+logger.password={REDACTED}"),
        ("wandb.api_key=abc", f"wandb.api_key={REDACTED}"),
        ("--db postgresql://me:pw@db/x", f"--db postgresql://me:{REDACTED}@db/x"),
        ("--data=https://u:p@h/x?y", f"--data=https://u:{REDACTED}@h/x?y"),
        ("run hf_" + "aB" * 17, f"run {REDACTED}"),
        ("--db-password 12345", f"--db-password {REDACTED}"),
        ("-password hunter2", f"-password {REDACTED}"),
    ],
)
def test_secret_arguments(words: str, kept: str) -> None:
    found = redact_arguments(["train.py", *words.split()])
    assert " ".join(found.words) == f"train.py {kept}"
    assert len(found.redacted) == 1


@pytest.mark.parametrize(
    "words",
    [
        "--max-tokens 4096 --num_tokens=10B --key-dim=64 --pin-memory true",
        "--pad-token <pad> --eos-token=</s> --auth none",
        "--token --lr 0.1",
        "--token= --tokenizer gpt2",
        "--cert /etc/ssl/cert.pem --data=https://host/path:with@signs",
        "--seed 1 steps=3 -m torch.distributed.run",
    ],
)
def test_settings_are_no_secrets_whatever_they_are_called(words: str) -> None:
    found = redact_arguments(["train.py", *words.split()])
    assert found.words == ("train.py", *words.split()) and found.redacted == ()


def test_what_was_redacted_is_named_and_the_program_itself_never_is() -> None:
    found = redact_arguments(["secret=1/train.py", "--api-key", "abc", "x", "https://u:p@h"])
    assert found.words[0] == "secret=1/train.py"
    assert found.redacted == ("--api-key", "argument 4")
    assert redact_arguments([]).words == ()


def test_arguments_in_a_variable() -> None:
    assert looks_secret("TRAIN_ARGS", "--lr 0.1 --api-key abc")
    assert not looks_secret("TRAIN_ARGS", "--lr 0.1 --max-tokens 64")
