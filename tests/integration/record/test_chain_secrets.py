"""A job that knows forty secrets: its capsule holds those alone that are said to be kept, and no command tells one."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from chain import PARTS, Said, prismdbg, recording
from jobs import forked, plain_environment

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.jobs.storage.run_folder import RunFolder

pytestmark = pytest.mark.job


def planted(name: str, size: int = 24) -> str:
    """A value that is met nowhere else, of letters and digits."""
    digest = hashlib.sha256(f"planted {name}".encode()).digest() * 4
    return "q7" + base64.b64encode(digest).decode().translate(str.maketrans("", "", "+/="))[:size]


V = {name: planted(name) for name in (
    "sshpass", "db_pw", "hf", "wandb", "aws", "json", "url", "sas", "amz", "auth", "dsn", "pgp", "in_value",
    "p", "u", "password", "assigned", "cfg", "header", "url_arg", "hydra", "slack_arg",
    "netrc", "aws_file", "dotenv", "hf_file", "ssh", "docker", "kaggle", "dotfile", "git",
    "yaml", "webhook", "raised", "raised_url", "raised_bearer",
    "cast_key", "cast_url", "cast_token", "cast_nested",
)}  # fmt: skip
GITHUB = "ghp_" + planted("github", 36)
TEAMS = "https://corp.webhook.office.com/webhookb2/" + planted("teams", 30)
IN_FILES = {V["yaml"], V["webhook"]}  # kept in the program's own settings
IN_PAYLOADS = {V["cast_key"], V["cast_url"], V["cast_token"], V["cast_nested"]}
KEPT = IN_FILES | IN_PAYLOADS
NUMBERS = ("482917340561", "918273645501")
ALL = {*V.values(), GITHUB, TEAMS, *NUMBERS}

ENVIRONMENT = {
    "SSHPASS": V["sshpass"],
    "DB_PW": V["db_pw"],
    "HF_TOKEN": f"hf_{V['hf']}",
    "WANDB_API_KEY": V["wandb"],
    "AWS_SECRET_ACCESS_KEY": V["aws"],
    "TRAINER": json.dumps({"lr": 0.1, "wandb": {"api_key": V["json"]}}),
    "DATA_URL": f"https://me:{V['url']}@host/data",
    "SAS": f"https://a.blob.core.windows.net/c?sv=2022&sig={V['sas']}",
    "PRESIGNED": f"https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature={V['amz']}",
    "HEADERS": f"Authorization: Basic {V['auth']}",
    "SENTRY_DSN": f"https://{V['dsn']}@o1.ingest.sentry.io/1",
    "PGPASSWORD": V["pgp"],
    "MYSQL_PASS": NUMBERS[0],
    "NUMBERED": f"x-{NUMBERS[0]}-y",
    "INNOCENT": f"x-{V['wandb']}-y",  # holds what another one holds
    "CURL": f"-u me:{V['in_value']}",
    "ALERTS": TEAMS,
    "HARMLESS": "what the program needs",
}  # fmt: skip
ARGUMENTS = [
    "-p", V["p"], "-u", f"me:{V['u']}", "--password", V["password"], f"--api-key={V['assigned']}",
    f'--cfg={{"token":"{V["cfg"]}"}}', "-H", f"Authorization: Bearer {V['header']}", "--url",
    f"https://me:{V['url_arg']}@host", f"+logger.password={V['hydra']}", GITHUB,
    f"--hook=https://hooks.slack.com/services/T0/B0/{V['slack_arg']}", "--auth-token", NUMBERS[1],
    "--lr", "0.1",
]  # fmt: skip
CREDENTIALS = {
    ".netrc": f"machine host login me password {V['netrc']}\n",
    ".aws/credentials": f"[default]\naws_secret_access_key = {V['aws_file']}\n",
    "project/.env": f"DB_PASSWORD={V['dotenv']}\n",
    ".cache/huggingface/token": f"hf_{V['hf_file']}",
    ".ssh/id_ed25519": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{V['ssh']}\n-----END OPENSSH PRIVATE KEY-----\n",
    ".docker/config.json": json.dumps({"auths": {"host": {"auth": V["docker"]}}}),
    ".kaggle/kaggle.json": json.dumps({"username": "me", "key": V["kaggle"]}),
    ".mytool/state": V["dotfile"],
    ".git-credentials": f"https://me:{V['git']}@github.com\n",
}
SETTINGS = f"lr: 0.1\napi_key: {V['yaml']}\nalerts: https://hooks.slack.com/services/T0/B0/{V['webhook']}\n"
BROADCAST = {
    "lr": 0.1,
    "api_key": V["cast_key"],
    "data": f"https://me:{V['cast_url']}@host",
    "hub": f"hf_{V['cast_token']}AAAAAAAA",
    "deep": [{"db": {"password": V["cast_nested"]}}],
}
RAISED = f"api_key={V['raised']} at https://me:{V['raised_url']}@host, Authorization: Bearer {V['raised_bearer']}"


@dataclass(frozen=True)
class Kept:
    run: RunFolder
    home: Path
    capsule: Path
    output: str


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """The incident's capsule, made by itself when rank 0 raises."""
    folder = tmp_path_factory.mktemp("secrets")
    home, settings = folder / "home", folder / "settings"
    settings.mkdir()
    for name, text in CREDENTIALS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / ".mytool" / "state").chmod(0o600)
    (settings / "settings.yaml").write_text(SETTINGS)
    (settings / "broadcast.json").write_text(json.dumps(BROADCAST))
    paths = ":".join([*(str(home / name) for name in CREDENTIALS), str(settings / "settings.yaml")])
    command = forked(PARTS / "tells_secrets.py", settings, paths, *ARGUMENTS, ranks=2)
    words = base64.b64encode(RAISED.encode()).decode()
    env = plain_environment(**ENVIRONMENT, HOME=str(home), WORDS=words)
    with recording(command, folder, "--window", "all", env=env) as job:
        ended = job.end()
        assert ended.code != 0
        capsules = [path for path in job.capsules if Capsule.open(path).manifest.rank == 0]
        assert capsules, ended.output[-3000:]
        yield Kept(job.run, home, capsules[0], ended.output)


def holding(folder: Path, value: str) -> list[str]:
    """The files below `folder` in which the value stands."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in paths if value.encode() in path.read_bytes()]


def assert_tells_nothing(said: Said) -> None:
    assert [value for value in ALL if value in said.out + said.err] == []


def test_no_secret_is_in_the_capsule_but_those_that_are_said_to_be_kept(kept: Kept) -> None:
    assert len(ALL) >= 40
    found = {value: where for value in sorted(ALL) if (where := holding(kept.capsule, value))}
    assert set(found) == KEPT, {name: found[value] for name, value in V.items() if value in found.keys() - KEPT}
    for value in IN_FILES:
        assert all(name.startswith(f"{layout.FILES}/") for name in found[value])
    for value in IN_PAYLOADS:
        assert all(name.startswith(f"{layout.LOG}/payload.") for name in found[value])


def test_everything_is_listed_by_place_and_never_by_value(kept: Kept) -> None:
    said = prismdbg("inspect", "--secrets", "--json", kept.capsule)
    assert said.code == 0
    assert_tells_nothing(said)
    places = {(entry["state"], entry["place"].split(":")[0]) for entry in said.json["findings"]}
    redacted = {place for state, place in places if state == "redacted"}
    assert {f"variable {name}" for name in ENVIRONMENT} - redacted == {"variable HARMLESS"}
    assert {f"file {kept.home / name}" for name in CREDENTIALS} <= redacted
    options = ("-p", "-u", "--password", "--api-key", "--cfg", "-H", "--url", "+logger.password", "--hook")
    assert {f"argument {name}" for name in options} <= redacted
    assert any(place.startswith("argument ") and place.split()[1].isdigit() for place in redacted)
    still = {place for state, place in places if state == "kept"}
    assert still == {f"file {kept.home.parent / 'settings' / 'settings.yaml'}"} | {
        place for place in still if place.startswith("payload of ")
    }
    assert any("broadcast" in place for place in still) and any("allgather" in place for place in still)
    entries = [entry for entry in said.json["findings"] if entry["place"].startswith("file ")]
    assert any(f"sha256 {hashlib.sha256(CREDENTIALS['.netrc'].encode()).hexdigest()}" in e["what"] for e in entries)
    table = prismdbg("inspect", "--secrets", kept.capsule)
    assert_tells_nothing(table)
    assert "variable SSHPASS" in table.out and "settings.yaml:2" in table.out


def test_no_command_tells_one(kept: Kept) -> None:
    path, run = kept.capsule, kept.run.path
    for line in (
        ["inspect", path], ["inspect", "--json", path], ["inspect", "--files", path], ["verify", path], ["why", run],
        ["why", "--json", run], ["status", run], ["list", run], ["open", path], ["pack", "--share", path],
        ["inspect", "--rank", 0, run],
    ):  # fmt: skip
        assert_tells_nothing(prismdbg(*line))
    ours = "\n".join(line for line in kept.output.splitlines() if line.startswith("prismdbg"))
    assert [value for value in ALL if value in ours] == []
    assert "login failed" in prismdbg("why", run).out  # the rest of the message is there


def test_what_the_run_folder_holds_is_for_its_owner_alone(kept: Kept) -> None:
    """What the ranks were started with stands in it as it was; what they raised does not."""
    run = kept.run.path
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    held = {value: holding(run, value) for value in ALL}
    files = [path for path in run.rglob("*") if path.is_file() and not path.is_relative_to(run / "inject")]
    assert [path for path in files if stat.S_IMODE(path.stat().st_mode) != 0o600] == []
    for value in (V["raised"], V["raised_url"], V["raised_bearer"]):
        assert held[value] == []
    assert not [name for name in held[V["password"]] if not name.endswith("/rank.json")]


def test_it_is_not_shared_by_accident(kept: Kept, tmp_path: Path) -> None:
    target = tmp_path / "shared.tar.zst"
    said = prismdbg("pack", "--share", kept.capsule, "-o", target)
    assert said.code == 1 and not target.exists() and list(tmp_path.iterdir()) == []
    assert_tells_nothing(said)
    assert "settings.yaml:2" in said.err and "payload of" in said.err and "--share-anyway" in said.err
    said = prismdbg("pack", "--share-anyway", kept.capsule, "-o", target)
    assert said.code == 0 and "secrets" in said.err
    assert_tells_nothing(said)


def test_it_is_shared_with_all_of_them_masked(kept: Kept, tmp_path: Path) -> None:
    target = tmp_path / "masked.tar.zst"
    said = prismdbg("pack", "--share", "--redact", kept.capsule, "-o", target)
    assert said.code == 0, said.err
    assert_tells_nothing(said)
    assert prismdbg("unpack", target, "-o", tmp_path / "there").code == 0
    assert {value for value in ALL if holding(tmp_path / "there", value)} == set()
    assert prismdbg("verify", tmp_path / "there").code == 0
    findings = prismdbg("inspect", "--secrets", "--json", tmp_path / "there").json["findings"]
    assert findings and {entry["state"] for entry in findings} == {"redacted"}
    assert sorted(path.name for path in kept.capsule.parent.iterdir() if path.name.startswith(".")) == []


def test_a_replay_needs_no_secret_that_the_program_does_not_use(kept: Kept) -> None:
    """On this machine the files of credentials are still what they were; the variable that it reads at its end is not
    there."""
    said = prismdbg("replay", kept.capsule, "--runtime", "local", "--json")
    assert said.json["tally"]["compared"] > 3, said.err
    assert "the environment variable DB_PW is not in this capsule" in said.json["output"]
    ours = {name: value for name, value in said.json.items() if name != "output"}  # that is the program's own
    assert_tells_nothing(Said(code=said.code, out=json.dumps(ours), err=said.err))


def test_a_replay_elsewhere_is_told_which_file_to_bring(kept: Kept, tmp_path: Path) -> None:
    """The files are gone; as on another machine."""
    away = kept.home.with_name("away")
    kept.home.rename(away)
    try:
        said = prismdbg("replay", kept.capsule, "--runtime", "local", "--json")
        netrc = kept.home / ".netrc"
        assert f"{netrc} is not in this capsule: it contains credentials" in said.json["output"]
        assert f"--with-file {netrc}" in said.json["output"] and "--with-file PATH" in said.err
        mine = [word for name in CREDENTIALS for word in ("--with-file", f"{kept.home / name}={away / name}")]
        said = prismdbg("replay", kept.capsule, "--runtime", "local", "--json", *mine)
        assert said.json["tally"]["compared"] > 3, said.json["output"]
        assert "with-file" not in said.err and "read 10 files" in said.json["output"]
        said = prismdbg("replay", kept.capsule, "--with-file", "/etc/hosts")
        assert said.code == 2 and str(netrc) in said.err
    finally:
        away.rename(kept.home)


@pytest.mark.criu
def test_raw_memory_of_a_real_process(tmp_path: Path) -> None:
    """The checkpoint holds what was taken out elsewhere: it is found there, and not shared. The file that the rank
    reads later is left out as in any capsule."""
    home = tmp_path / "home"
    home.mkdir()
    netrc = home / ".netrc"
    netrc.write_text(CREDENTIALS[".netrc"])
    env = plain_environment(HOME=str(home), DB_PW=V["db_pw"])
    capsule = tmp_path / "capsule"
    with recording(forked(PARTS / "reads_credentials.py", tmp_path, ranks=2), tmp_path, env=env) as job:
        job.wait_for_step(0, 3)
        said = prismdbg("capture", job.run.path, "--rank", 0, "--window", 20, "-o", capsule)
        (tmp_path / "last").touch()
        assert said.code == 0, said.err
        assert job.end().code == 0
    (tmp_path / "last").unlink()  # it was not there yet
    assert {name.split("/")[0] for name in holding(capsule, V["db_pw"])} == {layout.CHECKPOINT}
    listed = prismdbg("inspect", "--secrets", "--json", capsule)
    assert_tells_nothing(listed)
    found = {(e["state"], e["place"].rpartition("-")[0] or e["place"], e["what"]) for e in listed.json["findings"]}
    assert ("kept", "checkpoint/pages", "variable DB_PW") in found
    said = prismdbg("pack", "--share", "--redact", capsule, "-o", tmp_path / "shared")
    assert said.code == 1 and "cannot be searched exhaustively" in said.err and not (tmp_path / "shared").exists()
    netrc.rename(tmp_path / "mine")
    said = prismdbg("replay", capsule, "--runtime", "local", "--json")
    assert said.code != 0 and f"{netrc} is not in this capsule: it contains credentials" in said.out
    said = prismdbg("replay", capsule, "--runtime", "local", "--with-file", f"{netrc}={tmp_path / 'mine'}")
    assert said.code == 0, said.err
