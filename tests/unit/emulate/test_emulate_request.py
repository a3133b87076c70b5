"""What `prismdbg emulate` refuses before anything runs, and the ranks whose values are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismdbg.cli import main
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import UsageError
from prismdbg.simulate.graph.mesh import Mesh

MESH = Mesh.parse("pp=4,dp=8,tp=2")
WIDE = Mesh.parse("pp=4,dp=64,tp=2")
TORCHRUN = ("python", "-m", "torch.distributed.run")
REQUEST = EmulateRequest(output=Path("run"), command=("python", "train.py"), world=64, mesh=MESH)


@pytest.mark.parametrize(
    ("changed", "named", "fix"),
    [
        ({"world": 65}, "has 4 x 8 x 2 = 64 ranks", "a world of 64"),
        ({"ranks": (0, 64)}, "rank 64 is not in the mesh", "0 to 63"),
        ({"classes": ("pp", "cp")}, "axis 'cp' is not in the mesh", "give one of: pp, dp, tp"),
        ({"together": ("cp",)}, "axis 'cp' is not in the mesh", "give one of: pp, dp, tp"),
        ({"together": ("tp",), "classes": ()}, "--together and --classes cannot be combined", "give --ranks"),
        ({"world": 512, "mesh": WIDE, "together": ("tp", "dp")}, "would run 128 ranks of", "at most 64 ranks"),
        ({"classes": (), "steps": 1}, "--steps 1 leaves no complete step", "--steps 2 or more"),
        (
            {"command": (*TORCHRUN, "--nproc-per-node", "6", "x.py")},
            "not a multiple of torchrun's --nproc-per-node 6",
            "divides --world",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_named_with_the_fix(changed: dict[str, Any], named: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        replace(REQUEST, **changed).check()
    assert named in str(caught.value)
    assert fix in caught.value.hint


def test_ranks_that_stand_for_others_are_wanted_and_what_they_are_sent_is_kept() -> None:
    assert replace(REQUEST, ranks=(3, 5)).wanted == (3, 5)
    assert replace(REQUEST, classes=("pp",)).wanted == (0, 16, 32, 48)
    assert replace(REQUEST, classes=()).wanted == (0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 32, 48)


@pytest.mark.parametrize("command", ["emulate", "plan"])
def test_ranks_and_classes_are_not_given_together(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["-o", "run"] if command == "emulate" else []
    mesh = ["--world", "64", "--mesh", "pp=4,dp=8,tp=2"]
    code = main.run([command, *output, *mesh, "--ranks", "1", "--classes", "--", "python", "train.py"])
    assert code == 2
    assert "give one of them" in capsys.readouterr().err


def test_a_plan_without_a_probe_says_what_the_mesh_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mesh = ["--world", "64", "--mesh", "pp=4,dp=8,tp=2"]
    code = main.run(["plan", "--no-probe", *mesh, "--classes", "pp", "--", "python", "train.py"])
    said = capsys.readouterr().out
    assert code == 0
    assert "ranks that run here" in said and " 8  certain  ranks differ along pp" in said
    assert "?  unknown  no trial run" in said
    missing = ["plan", "--no-probe", *mesh, "--cluster", str(tmp_path / "none.yaml"), "--", "python", "train.py"]
    assert main.run(missing) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--alike", "cp"], "axis 'cp' is not in the mesh"), (["--steps", "1"], "--steps 1 leaves no complete step")],
)
def test_what_cannot_be_paced_is_refused_before_anything_runs(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("ranks_per_node: 8\ntiers: {all: {spans: job, latency: 1 us, bandwidth: 1 GB/s}}\n")
    pace = ["--pace", "virtual", "--cluster", str(cluster), *options]
    code = main.run(["emulate", "-o", str(tmp_path / "run"), "--mesh", "dp=2", *pace, "--", "python", "train.py"])
    assert (code, said in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_the_world_may_be_left_to_torchrun_or_the_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--no-probe", "--mesh", "dp=8,tp=2", "--"]
    assert main.run([*plan, "python", "train.py"]) == 0
    assert main.run([*plan, *TORCHRUN, "--nnodes=2", "--nproc-per-node=8", "train.py"]) == 0
    assert main.run([*plan, *TORCHRUN, "--nnodes=4", "--nproc-per-node=8", "train.py"]) == 2
    assert "has 8 x 2 = 16 ranks, and the world has 32 ranks" in capsys.readouterr().err


def test_the_ranks_that_run_at_once_are_those_along_the_axes() -> None:
    asked = replace(REQUEST, ranks=(5, 4, 17), together=("tp",))
    assert asked.circles == ((4, 5), (16, 17))
    assert asked.chosen == asked.wanted == (4, 5, 16, 17)
    assert replace(asked, ranks=(5,), together=("tp", "pp")).circles == ((4, 5, 20, 21, 36, 37, 52, 53),)
    assert replace(asked, together=()).circles == ((5,), (4,), (17,))
