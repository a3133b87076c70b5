"""`prismdbg sweep --search` of a real program, from sampled operators, against the sweep of all its configurations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chain import prismdbg
from jobs import ROOT

EXAMPLES = ROOT / "examples"
SIZES = ("--world", 2, "--mesh", "dp", "--try", "mbs=2,8", "--try", "rc=none,full", "--json")
CLUSTER = ("--cluster", EXAMPLES / "emulation" / "cluster.yaml")
MODEL = f"{EXAMPLES / 'sweep' / 'gpt.yaml'} --batch 16 --microbatch {{mbs}} --recompute {{rc}}"
PROGRAM = (sys.executable, EXAMPLES / "sweep" / "train.py", "--microbatch")
JOB = (*PROGRAM, "{mbs}", "--recompute", "{rc}", "--steps", 6)
pytestmark = pytest.mark.job


def test_a_search_runs_the_best_and_its_regret_holds_against_the_sweep_of_all(tmp_path: Path) -> None:
    ops, output = tmp_path / "ops", tmp_path / "s"
    sampled = prismdbg(
        "sample", "-o", ops, "--mesh", "dp=2", "--budget", "30s", "--", *PROGRAM, 8, "--steps", 3, bound_s=300
    )
    assert sampled.code == 0, sampled.err
    known = ("--ops", ops, *CLUSTER)
    none = prismdbg("sweep", "-o", output, *SIZES, *known, "--memory-cap", "1MB", "--search", MODEL, "--", *JOB)
    assert none.code == 2 and "no configuration can be chosen: none fits into --memory-cap" in none.err
    assert not output.exists()
    predicted = prismdbg("sweep", *SIZES, "--how", "predict", *known, "--", *MODEL.split()).json["results"]
    told = {each["name"]: each["middle_ns"] for each in predicted}
    best = sorted(told, key=told.__getitem__)[:2]

    found = prismdbg("sweep", "-o", output, *SIZES, *known, "--search", MODEL, "--", *JOB, bound_s=600)
    assert found.code == 0, found.err
    ran = {each["name"]: each["middle_ns"] for each in found.json["results"] if each["state"] == "done"}
    assert sorted(ran) == sorted(best)
    assert [each["state"] for each in found.json["results"]].count("left out") == 2
    regret = found.json["regret"]
    assert regret["least"] == min(ran[name] / told[name] for name in ran)

    everything = prismdbg("sweep", "-o", output, *SIZES, *CLUSTER, "--", *JOB, bound_s=600)
    assert everything.code == 0 and "2 configurations ran before; 2 to go" in everything.err
    all_ns = {each["name"]: each["middle_ns"] for each in everything.json["results"]}
    assert {name: all_ns[name] for name in ran} == ran
    really = min(ran.values()) / min(all_ns.values()) - 1
    least = min(all_ns[name] / told[name] for name in all_ns if name not in ran)
    assert really <= regret["most"] + 1e-9 or least < regret["least"]
