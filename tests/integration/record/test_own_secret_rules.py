"""`[secrets]` of the user's configuration holds in the recorded rank, for its supervisor and in the capsule."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from chain import PARTS, prismdbg, recording
from jobs import forked, plain_environment

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule

pytestmark = pytest.mark.job

RAISED, IN_A_FILE, LICENSE = "acme-4711 of desk nine", "acme-4712", "open sesame"
RULES = """[secrets]
names = ["ACME_LICENSE"]
values = ["acme-[0-9]{4}(?: of desk [a-z]+)?"]
"""


def test_what_an_own_rule_finds_is_nowhere_but_in_the_programs_files(tmp_path: Path) -> None:
    settings, told = tmp_path / "settings", tmp_path / "told"
    settings.mkdir()
    (settings / "broadcast.json").write_text("{}")
    (settings / "seats.txt").write_text(f"lr: 0.1\n{IN_A_FILE}\n")
    config = tmp_path / "config" / "prismdbg" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(RULES)
    env = plain_environment(
        ACME_LICENSE=LICENSE,
        DB_PW="",
        WORDS=base64.b64encode(f"no seat for {RAISED}".encode()).decode(),
        XDG_CONFIG_HOME=str(tmp_path / "config"),
    )
    command = forked(PARTS / "tells_secrets.py", settings, settings / "seats.txt", ranks=2)
    with recording(command, tmp_path, "--window", "all", "--on-incident", f"cat >> {told}", env=env) as job:
        ended = job.end()
        capsule = next(path for path in job.capsules if Capsule.open(path).manifest.rank == 0)
        run = job.run.path

    assert holding(run, RAISED) == []
    texts = [json.loads(line)["text"] for line in told.read_text().splitlines()]
    assert texts and all("no seat for <redacted>" in text for text in texts)
    ours = "\n".join(line for line in ended.output.splitlines() if line.startswith("prismdbg"))
    assert "no seat for <redacted>" in ours and RAISED not in ours
    assert "no seat for <redacted>" in prismdbg("why", run).out, "the rank has written it so"

    assert holding(capsule, LICENSE) == []
    assert [name.rpartition("/")[0] for name in holding(capsule, IN_A_FILE)] == [layout.FILES]
    said = prismdbg("inspect", "--secrets", "--json", capsule, env=env)
    found = {(entry["state"], entry["place"]) for entry in said.json["findings"]}
    assert {("redacted", "variable ACME_LICENSE"), ("kept", f"file {settings}/seats.txt:2")} <= found
    assert IN_A_FILE not in said.out


def holding(folder: Path, value: str) -> list[str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in paths if value.encode() in path.read_bytes()]
