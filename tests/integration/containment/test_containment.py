"""A hostile program in every place that a replay can run in: what it tries to do outside of it fails, and it is
confined as SECURITY.md says. The program is started, restored from a checkpoint, and brought back by time travel."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from counting import Captured, ask, capture, counting, image_spec, program_spec, short_folder, with_saving
from other_user import said_as_nobody
from starter_parts import starter_parts
from waiting import wait_for

from prismdbg.checkpoint import bundle
from prismdbg.errors import FacilityError
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker_runtime import DockerRuntime
from prismdbg.runtime.limits import Limits, usual
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.plain_runtime import PlainRuntime
from prismdbg.runtime.runtime import RunningRank, Runtime
from prismdbg.runtime.spec import RANK, ReplaySpec
from prismdbg.runtime.starter_control import StarterControl

HOSTILE = Path(__file__).parents[1] / "programs" / "hostile_rank.py"
SECURITY = Path(__file__).resolve().parents[3] / "SECURITY.md"
HIDDEN_BY_DOCKER = {"/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
# runtime, origin, and whether it was brought back to an image of it: then the place is that of `debug`
PLACES = [
    "local-start", "local-image", "local-start-returned", "local-image-returned",
    "docker-start", "docker-image", "docker-start-returned", "docker-image-returned",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A hostile rank that runs, and how it is asked. seal: of its image 1; empty where none is taken."""

    name: str
    spec: ReplaySpec
    rank: RunningRank
    socket: Path
    seal: str

    def attempt(self, name: str, *words: str) -> str:
        """The error's name; what it did in words where there was none."""
        answer = ask(self.socket, " ".join(("attempt", name, *words)), 10)
        return str(answer.get("error") or f"done: {answer['done']}")

    def changed(self, *paths: Iterable[Path]) -> list[str]:
        """How, and of which of them, mode, owner or times could be changed; also of what it has open."""
        answer = self.attempt("change_shared", *(str(path) for some in paths for path in some))
        assert answer.startswith("done: ")
        return [one for one in answer[len("done: ") :].split("|") if one]

    def confinement(self) -> dict[str, Any]:
        return ask(self.socket, "confinement", 10)

    @property
    def is_docker(self) -> bool:
        return self.name.startswith("docker")


@pytest.fixture(scope="module")
def captured_hostile() -> Iterator[Captured]:
    try:
        criu = bundle.find()
    except FacilityError as error:
        pytest.skip(str(error))
    with short_folder() as home, short_folder() as capsule, counting(home, script=HOSTILE) as one:
        yield capture(criu, one, capsule)


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Place]:
    name = str(request.param)
    kind, origin = name.split("-")[:2]
    runtime: Runtime = LocalRuntime() if kind == "local" else DockerRuntime(daemon)
    if reason := runtime.available():
        pytest.skip(reason)
    with short_folder() as session, short_folder() as images:
        if origin == "start":
            spec, socket = program_spec(session, HOSTILE)
        else:
            spec, socket = image_spec(request.getfixturevalue("captured_hostile"), session)
        if name.endswith("returned"):
            spec = with_saving(spec, bundle.find(), images)
        if reason := runtime.refuses(spec):
            pytest.skip(reason)
        with _running(runtime, spec, socket, images) as (rank, seal):
            yield Place(name, spec, rank, socket, seal)


@contextmanager
def _running(runtime: Runtime, spec: ReplaySpec, socket: Path, images: Path) -> Iterator[tuple[RunningRank, str]]:
    """It, and the seal of image 1 where images are taken."""
    rank, seal = runtime.start(spec), ""
    try:
        ask(socket, "status")
        if spec.saving is not None:
            control = StarterControl(spec.session, 60)
            seal = _saved(control, "1")
            assert control.return_to("1", seal).refusal == ""
            ask(socket, "status")
        yield rank, seal
    finally:
        rank.kill()


def _saved(control: StarterControl, name: str) -> str:
    """The image's seal."""
    answer = control.save(name)
    assert answer.refusal == ""
    return answer.seal


@pytest.fixture
def core_pattern() -> Iterator[str]:
    """The machine's own, which is put back whatever happens."""
    before = CORE_PATTERN.read_text().strip()
    yield before
    if CORE_PATTERN.read_text().strip() != before:
        CORE_PATTERN.write_text(before)


def test_a_crash_starts_no_program_on_this_machine(place: Place, core_pattern: str, tmp_path: Path) -> None:
    marker, script = tmp_path / "escaped", tmp_path / "handler"
    script.write_text(f"#!/bin/sh\nid > {marker}\n")
    script.chmod(0o755)
    tmp_path.chmod(0o755)
    assert place.attempt("pipe_handler", str(script)) in ("EROFS", "EACCES")
    assert CORE_PATTERN.read_text().strip() == core_pattern
    assert not marker.exists()


WRITES = [
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/swappiness",
    "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/power/state",
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs", "/proc/1/mem",
    "/proc/1/attr/current",
]  # fmt: skip


@pytest.mark.parametrize("path", WRITES)
def test_no_setting_of_the_kernel_can_be_written(place: Place, path: str) -> None:
    text = "x" if path.startswith("/proc/1/") or path == "/proc/sysrq-trigger" else ""
    assert place.attempt("write", path, *([text] if text else [])) in ("EROFS", "EACCES", "ENOENT", "EPERM")


def test_no_mode_owner_or_time_of_what_others_see_can_be_changed(place: Place) -> None:
    """The kernel keeps one mode of an entry for every /proc; a bound device is this machine's own. Those of a container
    are its own: of them only what this machine would see counts."""
    before = _changed_ns()
    entries = [path for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink()]
    below = [path for folder in entries if folder.is_dir() for path in folder.iterdir()]
    devices = [Path("/dev", name) for name in DEVICES]
    assert len(entries) > 20 and below
    changed = place.changed(devices, entries, below)
    assert [one for one in changed if not (place.is_docker and _is_device(one))] == []
    assert _changed_ns() == before


def _is_device(change: str) -> bool:
    """Or an entry that a device hides."""
    path = change.split()[1]
    return path.startswith(("/dev/", "/proc/self/fd/")) or path in HIDDEN_BY_DOCKER


def _changed_ns() -> list[int]:
    return [Path("/dev", name).stat().st_ctime_ns for name in DEVICES]


def test_devices_can_still_be_written(place: Place) -> None:
    assert place.attempt("write", "/dev/null", "text") == "done: 4"


@pytest.mark.parametrize("path", ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kmsg"])
def test_the_kernels_memory_and_keys_cannot_be_read(place: Place, path: str) -> None:
    assert place.attempt("read", path) in ("done: 0", "ENOENT", "EACCES", "EPERM")


@pytest.mark.parametrize("path", ["/proc/1/root", "/proc/1/cwd", "/proc/1/map_files"])
def test_the_first_process_cannot_be_looked_into(place: Place, path: str) -> None:
    assert place.attempt("list", path) in ("EACCES", "EPERM", "ENOENT")


def test_what_the_first_process_has_open_cannot_be_opened(place: Place) -> None:
    found = {place.attempt(how, f"/proc/1/fd/{number}") for number in range(16) for how in ("read", "list")}
    assert found <= {"EACCES", "EPERM", "ENOENT"}


def test_the_first_process_cannot_be_ended(place: Place) -> None:
    if place.name == "docker-start":
        pytest.skip("it runs with no more rights than the rank: ending it ends the rank's own container")
    assert place.attempt("kill_starter") == "EPERM"
    assert place.rank.exit_code() is None


def test_the_kernel_does_not_end_it_for_the_rank_either(place: Place) -> None:
    if place.name == "docker-start":
        pytest.skip("it runs with no more rights than the rank: ending it ends the rank's own container")
    assert place.attempt("send_by_the_kernel", "1") in ("done: 0", "EPERM")
    count = ask(place.socket, "status")["count"]
    wait_for(lambda: ask(place.socket, "status")["count"] > count, 20, "it to go on")
    assert place.rank.exit_code() is None


def test_it_has_no_descriptor_of_the_starters(place: Place) -> None:
    found = place.attempt("descriptors").removeprefix("done: ").split("|")
    own = (str(place.spec.session / RANK), "/dev/null", "socket:[", "pipe:[", "/proc/")
    kept = [str(Path(name).parent) for name in (*(file.target for file in place.spec.files),)]
    assert len(found) >= 6 and [name for name in found if not name.startswith((*own, *kept))] == []
    assert not [name for name in found if name.startswith("/proc/") and not name.endswith("/fd")]


def test_criu_is_not_looked_into_while_it_works(place: Place) -> None:
    """By a process of the rank's that it does not stop."""
    if place.spec.saving is None:
        pytest.skip("only where images are taken")
    control, found = StarterControl(place.spec.session, 60), "/tmp/seen-from-outside"
    assert place.attempt("watch_from_outside", found) == "done: 0"
    for number in range(3):
        assert control.save(f"9{number}").refusal in ("", "criu could not save the rank")
    assert place.attempt("put", f"{found}.end", "x") == "done: 0"
    told = wait_for(lambda: ask(place.socket, f"read {found}")["text"], 20, "what it saw")
    saw, *reached = told.split("|")
    assert int(saw.split()[1]) >= 2, "the starter and criu"
    assert reached == []
    assert control.return_to("1", place.seal).refusal == ""


def test_criu_takes_nobodys_word_for_what_the_kernel_can(place: Place) -> None:
    """It would remember that in a file of the rank's view."""
    if place.spec.saving is None:
        pytest.skip("only where images are taken")
    control = StarterControl(place.spec.session, 60)
    assert control.save("80").refusal == ""
    for way in (("put", "/run/criu.kdat", "x"), ("remove", "/run/criu.kdat"), ("rename", "/run", "/tmp/run")):
        assert place.attempt(*way) in ("EROFS", "EBUSY", "EACCES", "EPERM"), way
    assert control.save("81").refusal == ""
    assert control.return_to("1", place.seal).refusal == ""


@pytest.mark.parametrize(
    "name", ["mount_again", "user_namespace", "user_namespace_by_clone", "vsock", "keyctl", "add_key", "bpf",
             "perf_event_open", "userfaultfd", "open_by_handle_at", "setns", "kexec_load", "init_module",
             "pidfd_getfd", "reboot", "capset"],
)  # fmt: skip
def test_a_privileged_call_is_refused(place: Place, name: str) -> None:
    allowed = ("EPERM", "EACCES") if name != "vsock" or place.name != "docker-start" else ("EPERM", "EAFNOSUPPORT")
    assert place.attempt(name) in allowed


@pytest.mark.parametrize("name", ["ptrace_starter", "process_vm_readv"])
def test_another_process_is_not_touched(place: Place, name: str) -> None:
    assert place.attempt(name) == "EPERM"


@pytest.mark.parametrize("name", ["clone3", "unknown", "x32_getpid", "io_uring_setup"])
def test_what_the_filter_does_not_know_is_not_there(place: Place, name: str) -> None:
    assert place.attempt(name) in ("ENOSYS", "EPERM")


def test_a_fresh_proc_cannot_be_mounted(place: Place) -> None:
    assert place.attempt("mount_proc", "/tmp/proc") == "EPERM"


def test_no_device_can_be_made(place: Place) -> None:
    disk = Path("/").stat().st_dev
    assert place.attempt("device", str(os.major(disk)), str(os.minor(disk))) in ("EPERM", "EACCES")


@pytest.mark.parametrize("path", ["/etc/shadow", "/root/.ssh", "/home", "/var/lib", "/run/docker.sock", "/etc/ssh"])
def test_files_of_this_machine_are_not_there(place: Place, path: str) -> None:
    if Path(path).is_dir():
        assert place.attempt("list", path) in ("ENOENT", "EACCES", "done: 0")
    else:
        assert place.attempt("read", path) in ("ENOENT", "EACCES")


def test_a_file_beside_the_session_is_not_there(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    secret.chmod(0o644)
    assert place.attempt("read", str(secret)) == "ENOENT"


def test_sockets_of_this_machine_are_not_reached(place: Place) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        name = f"prismdbg-test-{os.getpid()}"
        server.bind(f"\0{name}")
        server.listen(1)
        assert place.attempt("connect", f"@{name}") == "ECONNREFUSED"
    for path in ("/var/run/docker.sock", "/run/docker.sock"):
        assert place.attempt("connect", path) in ("ENOENT", "ECONNREFUSED")


def test_images_and_their_socket_are_out_of_reach(place: Place) -> None:
    if place.spec.saving is None:
        pytest.skip("only where images are taken")
    folder, control = place.spec.saving.folder, place.spec.control / "control"
    assert control.is_socket() and (folder / "1").is_dir()
    for path in (folder, place.spec.control):
        assert place.attempt("list", str(path)) in ("ENOENT", "done: 0")
    assert place.attempt("connect", str(control)) == "ENOENT"


def test_an_image_that_was_changed_is_not_restored(place: Place) -> None:
    if place.spec.saving is None:
        pytest.skip("only where images are taken")
    control = StarterControl(place.spec.session, 60)
    core = next((place.spec.saving.folder / "1" / "images").glob("core-*.img"))
    whole = core.read_bytes()
    try:
        core.write_bytes(whole + b"\0")
        refusal = control.return_to("1", place.seal).refusal
        assert f"modified after it was saved: images/{core.name}: " in refusal
        assert place.rank.exit_code() is None
    finally:
        core.write_bytes(whole)
    assert control.return_to("1", place.seal).refusal == ""
    wait_for(lambda: ask(place.socket, "status")["count"] > 0, 20, "it to count again")


def test_nothing_of_the_rank_has_a_say_in_how_criu_is_started(place: Place) -> None:
    """Its loader's list of libraries, its configuration, its plugins, its helpers, and the folders they lie in."""
    if place.spec.saving is None:
        pytest.skip("only where images are taken")
    control = StarterControl(place.spec.session, 60)
    for path, to in (("/etc", "/etc2"), ("/proc", "/proc2")):
        assert place.attempt("rename", path, to) == "EBUSY"
    assert place.attempt("remove", "/etc/ld.so.preload") == "EBUSY"
    script = "#!/bin/sh;touch_/tmp/run-by-criu"
    assert place.attempt("put", "/tmp/script", script) == "done: 0"
    assert place.attempt("put", "/etc/criu/default.conf", "action-script_/tmp/script") == "done: 0"
    for name in ("iptables", "iptables-restore", "ip", "nft", "tar", "sh"):
        place.attempt("put", f"/usr/local/sbin/{name}", script)
    place.attempt("put", "/usr/lib/criu/plugin.so", "no_library")
    seal = _saved(control, "2")
    assert place.attempt("read", "/tmp/run-by-criu") == "ENOENT"
    assert control.return_to("2", seal).refusal == ""
    assert place.attempt("read", "/tmp/run-by-criu") == "ENOENT"
    assert control.return_to("1", place.seal).refusal == ""


def test_it_is_confined_as_the_table_says(place: Place) -> None:
    told = security_table()[place.name.removesuffix("-returned") + ("-debug" if place.spec.saving else "")]
    group = group_limits(place.rank.rank_pid())
    by_docker = place.name == "docker-start"
    found = place.confinement()
    assert told == described(found, place.spec.limits, group, in_container=place.is_docker, has_engines_masks=by_docker)


def test_a_child_that_a_restored_rank_forks_at_once_is_limited(place: Place) -> None:
    if "image" not in place.name:
        pytest.skip("it is not restored")
    wait_for(lambda: ask(place.socket, "first_child")["unlimited"] is not None, 10, "the child to end")
    assert ask(place.socket, "first_child") == {"unlimited": False}


def test_a_user_who_is_not_root_confines_as_the_table_says() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    said = said_as_nobody(HOSTILE)
    if reason := said.get("unavailable"):
        pytest.skip(str(reason))
    most = replace(usual(), disk_bytes=said["confinement"]["limits"]["file size"])  # half of what was free then
    assert 0 < most.disk_bytes < shutil.disk_usage("/").total
    assert described(said["confinement"], most, {}) == security_table()["local-start-user"]


def test_a_plain_process_is_as_open_as_the_table_says() -> None:
    with short_folder() as session:
        spec, socket = program_spec(session, HOSTILE)
        rank = PlainRuntime().start(spec)
        try:
            found, group = ask(socket, "confinement", 10), group_limits(rank.rank_pid())
        finally:
            rank.kill()
    assert described(found, spec.limits, group) == security_table()["plain-start"]
    assert "--allow-writes" in str(PlainRuntime().refuses(replace(spec, allow_writes=False)))


def described(
    found: dict[str, Any],
    most: Limits,
    group: dict[str, int],
    *,
    in_container: bool = False,
    has_engines_masks: bool = False,
) -> dict[str, str]:
    """What a rank tells of its confinement, in the table's words. `group`: what its control group allows."""
    own = {name for name, link in found["namespaces"].items() if link != str(Path("/proc/self/ns", name).readlink())}
    capabilities = {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    return {
        "user": _user(found),
        "namespaces": ", ".join(sorted(own & {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"})),
        "capabilities": "none, bounding set empty" if capabilities == {"0" * 16} else str(capabilities),
        "seccomp": "filter" if found["Seccomp"] == "2" else found["Seccomp"],
        "NoNewPrivs": found["NoNewPrivs"],
        "masked": _masked(found["mounts"], OF_DOCKER if has_engines_masks else MASKED),
        "limits": "; ".join(_limits(found, most, group, in_container=in_container)),
    }


def group_limits(pid: int | None) -> dict[str, int]:
    """Of memory and processes, those that the control group of this process sets."""
    found = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name, kind, file in GROUP_FILES:
            said = Path("/sys/fs/cgroup", kind, path[1:], file)
            if kind in controllers.split(",") and said.is_file() and (text := said.read_text().strip()) != "max":
                found[name] = int(text)
    return found | swap_limit(pid, found.get("memory"))


def swap_limit(pid: int | None, memory: int | None) -> dict[str, int]:
    """Empty where none can be used beside the memory, or this machine counts none."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for kind, file, none in (("memory", "memory.memsw.limit_in_bytes", memory), ("", "memory.swap.max", 0)):
            said = Path("/sys/fs/cgroup", kind, path[1:], file)
            if memory and kind in controllers.split(",") and said.is_file() and said.read_text().strip() != str(none):
                return {"swap": -1}
    return {}


GROUP_FILES = [  # of version 1 and 2
    ("memory", "memory", "memory.limit_in_bytes"), ("memory", "", "memory.max"),
    ("processes", "pids", "pids.max"), ("processes", "", "pids.max"),
]  # fmt: skip


def _limits(found: dict[str, Any], most: Limits, group: dict[str, int], *, in_container: bool) -> Iterator[str]:
    page = os.sysconf("SC_PAGE_SIZE")
    own, sizes = found["limits"], {path: size // page for path, size in found["sizes"].items()}
    shared, memory = (-(-size // page) for size in (most.shared_bytes, most.memory_bytes))  # as a file system rounds
    if {"memory": most.memory_bytes // page * page, "processes": most.processes} == group:
        yield "cgroup of the container" if in_container else "cgroup"
    elif (own["data"], own["processes"]) == (most.memory_bytes, most.processes):
        yield "each process"
        shared = -(-most.without_group().shared_bytes // page)
        if sizes["/dev/shm"] == shared and sum(sizes.values()) <= memory + len(sizes):
            yield "memory file systems"
    if group and sizes["/dev/shm"] == shared:
        yield "memory file systems" if sizes["/"] == memory else "/dev/shm"
    if own["file size"] == most.disk_bytes:
        yield "file size"


def _user(found: dict[str, Any]) -> str:
    """real, effective, saved, and of file systems"""
    if found["users"] != [found["Uid"]] * 4 + [found["Gid"]] * 4 or found["Uid"] != found["Gid"]:
        return str(found["users"])
    if found["Uid"] != "0":
        return "the user"
    if found["uid_map"] == ["0", "0", str(2**32 - 1)]:
        return "root, without capabilities"
    owns_nothing = found["uid_map"][:2] == ["0", "1610612736"]
    return "root of a user namespace, without capabilities" if owns_nothing else str(found["uid_map"])


def _masked(mounts: dict[str, list[str]], masked: Iterable[str]) -> str:
    settings = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys")
    written = [path for path in settings if Path(path).exists() and "ro" not in mounts.get(path, ())]
    written += [path for path, flags in mounts.items() if path.startswith(settings) and "ro" not in flags]
    seen = [path for path in masked if Path(path).exists() and path not in mounts]
    found = {path for path in (*written, *seen) if not _is_masked_above(path, mounts) and path != OWN_FOLDER}
    if not found:
        return "yes"
    return "no" if "/proc/sys" in found else f"all but {sorted(found)}"


def _is_masked_above(path: str, mounts: dict[str, list[str]]) -> bool:
    """A masked file is the null device over it, which can be written; and what a masked folder holds is not there."""
    return any(f"{path}/".startswith(f"{masked}/") and masked in mounts for masked in MASKED)


MASKED = starter_parts().MASKED
OF_DOCKER = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware")
OWN_FOLDER = "/sys/fs/cgroup"  # in version 1: one in memory, of the container's own, with the groups in it, read-only


def test_every_place_of_the_table_is_tried() -> None:
    tried = {name.replace("-returned", "-debug") for name in PLACES} | {"local-start-user", "plain-start"}
    assert set(security_table()) == tried


def test_no_device_but_those_that_every_program_needs(place: Place) -> None:
    """Beside terminals of the place's own, and GPUs."""
    found = place.attempt("devices").removeprefix("done: ").split("|")
    assert {name for name in found if not name.startswith(("/dev/pts/", "/dev/nvidia"))} <= {
        f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "console")
    }


def security_table() -> dict[str, dict[str, str]]:
    """Of SECURITY.md: by place."""
    rows = [line.strip().strip("|").split("|") for line in SECURITY.read_text().splitlines() if line.startswith("| ")]
    head = [cell.strip() for cell in next(row for row in rows if row[0].strip() == "place")]
    found = {}
    for row in rows:
        cells = dict(zip(head, (cell.strip() for cell in row), strict=False))
        if re.fullmatch(r"`[a-z-]+`", cells["place"]):
            place = cells.pop("place").strip("`")
            found[place] = cells
    return found
