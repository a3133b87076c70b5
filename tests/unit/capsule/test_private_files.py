"""Files of credentials, told by their names, and those that only look alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsules import MANIFEST, RANK

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.files import Place, add_files, content_path, read_files
from prismdbg.capsule.secrets.private_files import is_credential, is_private

HOME = "/home/me"


@pytest.mark.parametrize(
    "path",
    [
        "~/.netrc", "~/_netrc", "/srv/.env", "/srv/app/.env.production", "~/.git-credentials", "~/.pypirc", "~/.npmrc",
        "~/.aws/credentials", "~/.aws/config", "~/.ssh/id_rsa", "~/.ssh/config", "~/.ssh/work", "~/.docker/config.json",
        "~/.kube/config", "~/.kaggle/kaggle.json", "/data/kaggle.json", "~/.cache/huggingface/token",
        "~/.cache/huggingface/stored_tokens", "~/.huggingface/token", "/hf/huggingface/token",
        "~/.config/gcloud/application_default_credentials.json", "~/.config/gcloud/credentials.db",
        "~/.config/gh/hosts.yml", "~/.config/wandb/settings", "/run/secrets/db", "/etc/shadow",
        "/srv/service-account.json",
        "/srv/tls.key", "/srv/keystore.jks", "~/.gnupg/secring.gpg", "~/.pgpass", "/srv/secrets.yaml",
        "/srv/id_ed25519", "/srv/prod.env", "/srv/token.txt", "/srv/hf_token", "~/.hf_token", "/srv/passwords.txt",
        "/srv/api_key.txt", "/srv/gcp-key.json", "/srv/my-service-account-key.json", "/srv/gcp-prod-key.json",
        "/srv/terraform.tfvars", "/srv/prod.auto.tfvars", "~/.config/containers/auth.json", "/srv/kubeconfig",
        "/srv/prod.kubeconfig", "~/.oci/config", "/run/user/1000/containers/auth.json",
    ],
)  # fmt: skip
def test_names_of_credentials(path: str) -> None:
    assert is_credential(path.replace("~", HOME))


@pytest.mark.parametrize(
    "path",
    [
        "/work/train.py", "/work/config.json", "/work/tokenizer.json", "/work/vocab.json", "/work/data.csv",
        "/work/.envrc.md",
        "/work/.env.example", "/work/secrets.py", "/work/token.py", "/work/keys.txt",
        "/etc/ssl/certs/ca-certificates.crt",
        "/usr/lib/python3/dist-packages/certifi/cacert.pem", "~/.cache/huggingface/hub/models--gpt2/config.json",
        "~/.config/matplotlib/matplotlibrc", "~/.bashrc", "/etc/passwd", "/etc/hosts", "/work/monkey",
        "/work/special_tokens_map.json", "/work/tokens.txt", "/work/hf_token.py", "/work/sort-key.json",
        "/work/example.env", "/work/prod.example.env", "/work/.venv", "/work/env", "/work/oci/config",
        "/work/auth.json", "/work/answer-key.json", "/work/monkey.txt", "/work/variables.tf",
    ],
)  # fmt: skip
def test_names_of_anything_else(path: str) -> None:
    assert not is_credential(path.replace("~", HOME))


@pytest.mark.parametrize(
    ("path", "mode", "size", "private"),
    [
        ("~/.mytool/auth.json", 0o600, 100, True),
        ("~/.lambda_cloud", 0o400, 100, True),
        ("~/.mytool/auth.json", 0o640, 100, False),
        ("~/.mytool/plugin.py", 0o600, 100, False),
        ("~/.cache/matplotlib/fontlist.json", 0o600, 100, False),
        ("~/.mytool/index", 0o600, 2 << 20, False),
        ("~/work/.hidden", 0o600, 100, False),
        ("/other/.mytool/auth.json", 0o600, 100, False),
    ],
)
def test_private_dotfiles_below_home(path: str, mode: int, size: int, private: bool) -> None:
    assert is_private(path.replace("~", HOME), mode, size, (HOME,)) is private


def test_they_stay_out_of_a_capsule_by_name_by_mode_by_content_and_through_links(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".tool").mkdir(parents=True)
    (home / ".netrc").write_text("machine h login me password hunter2\n")
    (home / ".tool" / "auth").write_text("hunter2")
    (home / ".tool" / "auth").chmod(0o600)
    (home / "rc").symlink_to(home / ".netrc")
    (home / "deploy.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n")
    (home / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n")
    names = [".netrc", ".tool/auth", "rc", "deploy.pem", "ca.pem"]
    with CapsuleWriter(tmp_path / "capsule") as writer:
        add_files(writer, [str(home / name) for name in names], homes=(str(home),))
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    files = {str(Path(file.path).relative_to(home)): file for file in read_files(capsule)}
    assert {name for name, file in files.items() if file.place is Place.REDACTED} == set(names) - {"ca.pem"}
    assert files[".netrc"].size_bytes == 36 and len(files[".netrc"].sha256) == 64
    assert content_path(capsule, files["ca.pem"]).is_file() and not content_path(capsule, files["rc"]).exists()
    assert not [path for path in capsule.path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
