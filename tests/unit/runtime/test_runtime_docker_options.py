"""What a container is given: only what the checkpoint engine needs, and nothing where the program is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismdbg.errors import CapsuleError, CheckpointError
from prismdbg.runtime.docker import daemon as docker_daemon
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker_runtime import DockerRuntime, container_options
from prismdbg.runtime.own_python import OwnPython
from prismdbg.runtime.plain_runtime import PlainRuntime
from prismdbg.runtime.spec import Bind, ImageOrigin, LaidFile, ProgramOrigin, ReplaySpec, Saving, StarterEngine
from prismdbg.settings.process_stat import start_ticks

OWN = OwnPython(folder=Path("/own"), command=("/own/loader", "/own/python"))
OWN_BINDS = ["/own:/own:ro", "/own/nothing:/etc/ld.so.preload:ro"]
ENGINE = StarterEngine(
    name="fast",
    folder=Path("/fast"),
    command=("/fast/it",),
    capabilities=("SYS_TIME",),
    explain=lambda what, log: CheckpointError(f"{what}: {log}"),
    explain_foreign=lambda what, log: CapsuleError(f"{what}: {log}"),
)
SAVING = Saving(engine=ENGINE, folder=Path("/images"))
SESSION = ["/session/rank:/session/rank:rw", "/session/given:/session/given:ro"]
# of a starter that has no more rights than the rank: neither can replace anything, and only its log can be written
ALONE = [
    "/session/control:/session/control:ro",
    "/session/control/starter.log:/session/control/starter.log:rw",
]


def spec(origin: str, **more: object) -> ReplaySpec:
    made: ImageOrigin | ProgramOrigin
    if origin == "image":
        made = ImageOrigin(engine=ENGINE, images=Path("/session/images"), root_pid=7, pids=(7,), names=())
    else:
        made = ProgramOrigin(executable="/bin/python", argv=("python",), env={}, cwd="/")
    values: dict[str, object] = {"uid": os.geteuid(), "gid": os.getegid(), "allow_writes": True, **more}
    return ReplaySpec(name="rank", origin=made, session=Path("/session"), python="/bin/python", **values)  # type: ignore[arg-type]


def shown(binds: list[Bind]) -> list[str]:
    return [f"{bind.source}:{bind.target}:{'ro' if bind.read_only else 'rw'}" for bind in binds]


@pytest.mark.parametrize("origin", ["image", "start"])
def test_no_network_and_removed_at_the_end(origin: str) -> None:
    options = container_options(spec(origin), OWN)
    assert options["network_mode"] == "none"
    assert options["auto_remove"] is True
    assert options["labels"]["prismdbg"] == "session"
    assert "privileged" not in options


def test_binds_are_where_the_links_of_the_rank_lead() -> None:
    """The engine makes their folders first: a folder in the place of a link would keep the link out."""
    linked = Bind(source=Path("/data"), target="/named/data")
    options = container_options(spec("start", binds=(linked,), links=(("/named", "/real"),)), OWN)
    assert "/data:/real/data:ro" in shown(options["binds"]) and "/session/rank:/session/rank:rw" in shown(
        options["binds"]
    )


def test_a_restore_gets_the_capabilities_that_its_engine_needs() -> None:
    options = container_options(spec("image"), OWN)
    assert options["cap_add"] == ["SYS_TIME"]
    assert "seccomp=unconfined" in options["security_opt"]


def test_a_program_whose_images_are_to_be_taken_is_with_the_engine() -> None:
    """The starter drops them all before it starts the program, and becomes its user."""
    options = container_options(spec("start", saving=SAVING), OWN)
    assert options["cap_add"] == ["SYS_TIME"]
    assert "user" not in options
    assert shown(options["binds"]) == [
        "/session/control:/session/control:rw",
        "/images:/images:rw",
        *SESSION,
        "/fast:/fast:ro",
        *OWN_BINDS,
    ]


def test_a_program_gets_none() -> None:
    options = container_options(spec("start"), OWN)
    assert options["cap_drop"] == ["ALL"] and "cap_add" not in options
    assert options["security_opt"] == ["no-new-privileges", "label=disable"]
    assert options["user"] == f"{os.geteuid()}:{os.getegid()}"
    assert {"/proc/meminfo", "/proc/sys", "/proc/tty"} <= {*options["read_only_paths"]}
    assert not {"/proc/self", "/proc/1", "/proc/mounts"} & {*options["read_only_paths"]}


def test_binds_are_read_only_unless_asked_for() -> None:
    capsule = Bind(source=Path("/agents"), target="/run/agents", read_only=False)
    volumes = container_options(spec("image", capsule=Path("/capsule"), binds=(capsule,)), OWN)["binds"]
    assert shown(volumes) == [
        "/session/control:/session/control:rw",
        *SESSION,
        "/capsule:/capsule:ro",
        "/fast:/fast:ro",
        "/agents:/run/agents:rw",
        *OWN_BINDS,
    ]


def test_a_large_file_that_lies_where_the_rank_knows_it_is_bound(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_text("x")
    with large.open("wb") as file:
        file.truncate(64 << 20)
    files = tuple(LaidFile(source=path, target=str(path)) for path in (small, large))
    volumes = container_options(spec("start", files=files), OWN)["binds"]
    assert shown(volumes) == [*ALONE, *SESSION, f"{large}:{large}:ro", *OWN_BINDS]


def test_an_engine_on_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    assert "runs on another machine" in str(DockerRuntime(Daemon(Path("/nowhere"))).available())


def test_docker_refuses_a_rank_whose_files_are_not_known() -> None:
    assert "installed files" in str(DockerRuntime(Daemon(Path("/nowhere"))).refuses(spec("image")))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (spec("image"), "a checkpoint needs a container"),
        (spec("start", allow_writes=False), "--allow-writes"),
        (spec("start", saving=SAVING), "cannot go back in time"),
        (spec("start", binds=(Bind(source=Path("/a"), target="/b"),)), "/b cannot be mounted"),
        (spec("start", files=(LaidFile(source=Path("/mine/train.py"), target="/job/train.py"),)), "not /mine/train.py"),
        (spec("start", uid=os.geteuid() + 77), f"user {os.geteuid() + 77}"),
    ],
)
def test_a_plain_process_refuses_what_it_could_only_pretend(given: ReplaySpec, word: str) -> None:
    assert word in str(PlainRuntime().refuses(given))


def test_a_plain_process_takes_the_rest() -> None:
    files = (
        LaidFile(source=Path("/data/set"), target="/data/set"),
        LaidFile(source=Path("/capsule/files/1"), target="/job/train.py"),
        LaidFile(source=None, target="/job/log"),
    )
    given = spec("start", binds=(Bind(source=Path("/a"), target="/a"),), files=files, capsule=Path("/capsule"))
    assert PlainRuntime().refuses(given) is None


def test_an_engine_that_lost_its_socket_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever told it to end was killed, and it did not end: it runs, and never answers again."""
    monkeypatch.setattr(docker_daemon, "_SLOW_START_S", 0.1)
    program = tmp_path / "dockerd"
    program.write_text("#!/bin/sh\necho engine >> $0.started\nexec tail -f /dev/null\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(Daemon, "cannot_start", lambda _: None)
    daemon = Daemon(tmp_path)
    started = tmp_path / "dockerd.started"
    try:
        daemon.start(lambda: started.exists())
        first = daemon.running_pid()
        daemon.start(lambda: "engine\nengine" in started.read_text())
        assert first is not None
        assert daemon.running_pid() not in (None, first)
        assert start_ticks(first) == 0
    finally:
        daemon.stop()
    assert daemon.running_pid() is None
