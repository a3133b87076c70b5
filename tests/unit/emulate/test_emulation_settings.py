"""What an emulated rank is told: rules for its peers, the axis of a group, the program behind a launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.emulate.emulated_rank import one_thread, rank_environment
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import UsageError
from prismdbg.jobs.record.launch_line import LaunchLine, parse
from prismdbg.settings.emulation import Emulation, Policy, Rule
from prismdbg.settings.mesh_axes import Axes
from prismdbg.simulate.graph.mesh import Mesh

MESH = (("pp", 16), ("dp", 64), ("tp", 8))


@pytest.mark.parametrize(
    ("text", "axis", "op", "policy"),
    [
        ("noise", "", "", Policy.NOISE),
        ("tp=echo", "tp", "", Policy.ECHO),
        ("dp+tp:all_reduce=zeros", "dp+tp", "all_reduce", Policy.ZEROS),
        (":broadcast=donor", "", "broadcast", Policy.DONOR),
    ],
)
def test_a_rule_says_axis_collective_and_policy(text: str, axis: str, op: str, policy: Policy) -> None:
    assert Rule.parse(text) == Rule(axis=axis, op=op, policy=policy)


@pytest.mark.parametrize(("text", "named"), [("tp=loud", "loud"), ("tp:allreduce=echo", "allreduce"), ("", "''")])
def test_a_rule_that_makes_no_sense_names_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        Rule.parse(text)
    assert raised.value.hint


def test_the_last_rule_that_holds_decides() -> None:
    rules = tuple(map(Rule.parse, ("zeros", "tp=echo", "tp:broadcast=noise")))
    settings = Emulation(rank=0, world=8192, axes=MESH, rules=rules)
    assert settings.policy("dp", "broadcast") is Policy.ZEROS
    assert settings.policy("tp", "all_reduce") is Policy.ECHO
    assert settings.policy("tp", "broadcast") is Policy.NOISE
    assert Emulation(rank=0, world=8, axes=()).policy("tp", "send") is Policy.AUTO


@pytest.mark.parametrize(
    ("axes", "rule", "ranks"),
    [
        ((("dp", 8192),), "dp=noise", range(8192)),  # the world has no other name for who wrote the mesh
        ((("dp", 8192),), "world=noise", range(8192)),
        (MESH, "pp+dp+tp=noise", range(8192)),
        (MESH, "tp+dp=noise", range(512)),  # in another order than the mesh's
        ((("pp", 1), ("dp", 64), ("tp", 1)), "dp+tp=noise", range(64)),
        ((("pp", 2), ("dp", 64), ("tp", 1)), "dp+tp=noise", range(64)),
    ],
)
def test_a_rule_holds_for_the_group_over_its_axes_however_it_is_called(
    axes: tuple[tuple[str, int], ...], rule: str, ranks: range
) -> None:
    settings = Emulation(rank=0, world=8192, axes=axes, rules=(Rule.parse(rule),))
    assert settings.policy(Axes(axes).name_of("g", list(ranks)), "all_reduce") is Policy.NOISE
    assert settings.policy("another", "all_reduce") is Policy.AUTO


def test_settings_come_back_from_their_file() -> None:
    settings = Emulation(rank=3, world=8192, axes=MESH, rules=(Rule.parse("tp=echo"),), asked=(0, 3), until="0|5")
    assert Emulation.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        (range(8192), "world"),
        (range(32, 40), "tp"),
        (range(5, 512, 8), "dp"),
        (range(37, 8192, 512), "pp"),
        (range(512), "dp+tp"),
        ([a for a in range(8192) if a % 512 // 8 == 4], "pp+tp"),
        ([0, 1], "g"),  # half of tp: no axis
        ([0, 9], "g"),
    ],
)
def test_a_group_is_called_by_the_axes_it_spans(ranks: list[int], name: str) -> None:
    assert Axes(MESH).name_of("g", list(ranks)) == name


def test_the_members_of_an_axis_are_a_group_of_that_name() -> None:
    axes = Axes(MESH)
    for name in ("tp", "dp", "pp", "dp+tp"):
        members = axes.members(37, name)
        assert 37 in members
        assert axes.name_of(name + "?", members) == name


def test_torchrun_is_taken_off(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/opt/env/bin/python3.11\n")
    torchrun.chmod(0o755)
    words = "--nnodes=2 --nproc_per_node 8 --standalone --rdzv-backend c10d train.py --steps 5"
    line = parse([str(torchrun), *words.split()])
    assert line.command == ("/opt/env/bin/python3.11", "-u", "train.py", "--steps", "5")
    assert (line.per_node, line.nodes, line.world) == (8, 2, 16)
    as_module = parse(
        ["python3", "-m", "torch.distributed.run", "--nproc-per-node=auto", "-m", "job.train", "--lr", "1"]
    )
    assert as_module.command == ("python3", "-u", "-m", "job.train", "--lr", "1")
    assert as_module.per_node == 0


def launched(*options: str) -> LaunchLine:
    return parse(["python3", "-m", "torch.distributed.run", *options, "train.py"])


@pytest.mark.parametrize(
    ("options", "on_node"),
    [
        ((), 0),
        (("--standalone", "--nproc-per-node", "4"), 4),
        (("--nproc_per_node=8",), 8),
        (("--nnodes", "2", "--nproc-per-node", "16"), 16),
        (("--nnodes", "4", "--nproc-per-node", "gpu"), 8),
        (("--nnodes=1:4", "--nproc-per-node=8"), 8),
    ],
)
def test_a_launcher_that_fits_the_world(options: tuple[str, ...], on_node: int) -> None:
    line = launched(*options)
    line.check_world(32)
    assert line.on_node(32) == on_node


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        (
            ("--nnodes", "2", "--nproc-per-node", "8"),
            r"torchrun would start 16 ranks \(--nnodes 2 times --nproc-per-node 8\), but --world is 32",
            "leave out --nnodes",
        ),
        (
            ("--nproc-per-node", "5"),
            "--world 32 is not a multiple of torchrun's --nproc-per-node 5",
            "divides",
        ),
        (
            ("--nnodes", "3", "--nproc-per-node", "auto"),
            "not a multiple of torchrun's --nnodes 3",
            "leave out --nnodes",
        ),
    ],
)
def test_a_launcher_that_would_start_another_job_is_refused(options: tuple[str, ...], said: str, fix: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        launched(*options).check_world(32)
    assert fix in caught.value.hint


@pytest.mark.parametrize("value", ["0", "-8", "eight", "", "²"])
def test_a_number_of_processes_that_is_none(value: str) -> None:
    with pytest.raises(UsageError, match=r"torchrun's --nproc-per-node .* is not a number"):
        launched(f"--nproc-per-node={value}")


def test_any_other_program_is_run_as_it_is() -> None:
    words = ("python", "-m", "job", "torchrun", "--nproc-per-node", "4")
    assert parse(words).command == words


@pytest.mark.parametrize("words", [[], ["torchrun", "--nproc-per-node", "8"]])
def test_a_command_without_a_program_is_an_error(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words)


def test_the_environment_is_that_of_torchrun() -> None:
    environment = rank_environment(37, 8192, 8)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    assert [environment[name] for name in names] == ["37", "8192", "5", "8", "4", "1024"]


def test_ranks_of_a_node_have_one_thread_each_as_with_torchrun() -> None:
    assert one_thread(8) == {"OMP_NUM_THREADS": "1"} and one_thread(1) == {}


def _request(**more: object) -> EmulateRequest:
    values = {"world": 8, "mesh": Mesh.parse("dp=4,tp=2"), **more}
    return EmulateRequest(output=Path("run"), command=("python", "x.py"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"world": 16}, "and the world has"),
        ({"ranks": (0, 8)}, "rank 8"),
        ({"rules": (Rule.parse("pp=echo"),)}, "'pp'"),
        ({"rules": (Rule.parse("dp+sp:broadcast=zeros"),)}, "'sp'"),
    ],
)
def test_what_does_not_fit_the_mesh_is_named_with_the_fix(more: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        _request(**more).check()
    assert raised.value.hint


def test_what_fits_is_accepted() -> None:
    _request(ranks=(0, 7), rules=(Rule.parse("world:barrier=zeros"), Rule.parse("dp+tp=echo"))).check()


@pytest.mark.parametrize(
    "command",
    [
        "python train.py", "python3.11 -u -X faulthandler train.py --lr 1", "python -W ignore train.py",
        "python -m torch.distributed.run --standalone train.py",
    ],
)  # fmt: skip
def test_a_script_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^no such file or directory: train\.py$") as raised:
        parse(command.split()).check_program()
    assert str(tmp_path) in raised.value.hint
    Path("train.py").write_text("")
    parse(command.split()).check_program()


@pytest.mark.parametrize(
    "command",
    ["python -m pack.train", "python -um pack.train", "python -c pass x.py", "python - x.py", "bash x.sh", "python"],
)
def test_what_is_no_script_is_left_to_what_runs_it(command: str) -> None:
    parse(command.split()).check_program()
