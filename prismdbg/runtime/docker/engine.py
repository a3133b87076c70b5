"""The one file that talks to Docker: finds an engine, or starts one of our own, and turns its errors into ours."""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, ParamSpec, TypeVar, cast

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import Mount

from prismdbg.errors import FacilityError, PrismError, RuntimeFailure
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.owner import is_gone, owner
from prismdbg.runtime.spec import Bind

LABEL, OWNER_LABEL = "prismdbg", "prismdbg.owner"
_NOT_STARTED = ["created", "exited", "dead"]  # what runs ends with its client, and then removes itself
_OF_ITS_PROCESS = {"hostname", "working_dir", "environment", "user"}  # all else is of the machine below it
# Docker's own list, which one that is given takes the place of.
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_CALL_S, _IMPORT_S = 60, 1800
_FRAME = struct.Struct(">B3xL")  # of an output: which one, how many bytes follow
_MOST_SAID_BYTES = 64 << 10
_TOLD_S = 3.0  # from the death of a process until Docker tells of it
_ENDS_S = 120.0  # so long a container may take to end: the kernel ends tens of thousands of processes one by one
_STILL_ENDS = "did not receive an exit event"  # Docker's words after its own ten seconds
_MAPS_USERS = ("name=rootless", "name=userns")  # as `docker info` shows them
_MAPPED = "the Docker engine maps users, so a container cannot reach the files of a replay: use --runtime local"
_HINT = "install docker.io and start it, or use --runtime local"

P = ParamSpec("P")
T = TypeVar("T")


def _ours(call: Callable[P, T]) -> Callable[P, T]:
    """Docker's and its transport's failures as `RuntimeFailure`, in the engine's own words."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except APIError as error:
            hint = "read Docker's log, or use --runtime local"
            raise RuntimeFailure(f"Docker refused: {error.explanation or error}", hint=hint) from error
        except (DockerException, requests.RequestException) as error:
            raise RuntimeFailure(f"Docker does not answer: {error}", hint=_HINT) from error

    return wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """`size_bytes` of all its layers: what it shares with another is counted in both."""

    tag: str
    size_bytes: int
    created_ns: int


class Engine:
    """A connection to one engine. Close it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = docker.DockerClient(base_url=url, timeout=_CALL_S, version="auto")
        self._api = cast(Any, self._client.api)

    @_ours
    def version(self) -> str:
        return str(self._client.version()["Version"])

    @_ours
    def root_folder(self) -> str:
        return str(self._client.info()["DockerRootDir"])

    @_ours
    def maps_users(self) -> bool:
        """Whether a user in its containers is another one outside: it is rootless, or has `userns-remap`."""
        options = self._client.info().get("SecurityOptions") or ()
        return any(str(option).partition(",")[0] in _MAPS_USERS for option in options)

    @_ours
    def has_image(self, tag: str) -> bool:
        try:
            self._client.images.get(tag)
        except ImageNotFound:
            return False
        return True

    @_ours
    def images_labelled(self, label: str) -> list[str]:
        """Tags, or ids where there is no tag."""
        found = self._client.images.list(filters={"label": label})
        return [str([*image.tags, image.id][0]) for image in found]

    @_ours
    def import_image(self, repository: str, tag: str, layer: Iterable[bytes], labels: Mapping[str, str]) -> None:
        self._api.timeout = _IMPORT_S
        try:
            answer = self._api.import_image_from_data(layer, repository=repository, tag=tag, changes=_changes(labels))
        finally:
            self._api.timeout = _CALL_S
        if '"error"' in str(answer):
            raise RuntimeFailure(
                f"Docker could not import the container image: {str(answer)[-300:]}",
                hint="check whether the disk is full",
            )

    @_ours
    def remove_image(self, tag: str) -> None:
        """Harmless when it is gone."""
        with contextlib.suppress(ImageNotFound):
            self._client.images.remove(tag, force=True)

    @_ours
    def images_of(self, repository: str) -> list[StoredImage]:
        """Oldest first."""
        found = [
            StoredImage(
                tag=str(image.tags[0]),
                size_bytes=int(image.attrs["Size"]),
                created_ns=int(datetime.fromisoformat(image.attrs["Created"][:19] + "+00:00").timestamp() * 1e9),
            )
            for image in self._client.images.list(repository)
        ]
        return sorted(found, key=lambda image: image.created_ns)

    @_ours
    def remove_unused_image(self, tag: str) -> bool:
        """False where a container stands on it. It takes a while: an image is tens of thousands of files."""
        self._api.timeout = _IMPORT_S
        try:
            self._client.images.remove(tag)
        except ImageNotFound:
            return True
        except APIError as error:
            if error.status_code != 409:
                raise
            return False
        finally:
            self._api.timeout = _CALL_S
        return True

    @_ours
    def create(
        self,
        image: str,
        command: list[str],
        *,
        binds: Iterable[Bind] = (),
        read_only_paths: Iterable[str] = (),
        **options: Any,
    ) -> str:
        """The new container's id; `options` as Docker's SDK names them. Paths of binds may hold any character.
        read_only_paths: of the container's own, beside those that Docker makes so."""
        mounts = [Mount(bind.target, str(bind.source), type="bind", read_only=bind.read_only) for bind in binds]
        labels = {**options.pop("labels", {}), OWNER_LABEL: owner()}
        inside = {name: options.pop(name) for name in _OF_ITS_PROCESS & options.keys()}
        host = self._api.create_host_config(mounts=mounts, **options)
        if read_only_paths:
            host["ReadonlyPaths"] = [*read_only_paths, *_READ_ONLY]  # of which the SDK knows nothing
        return str(self._api.create_container(image, command, host_config=host, labels=labels, **inside)["Id"])

    @_ours
    def put(self, container: str, archive: Iterable[bytes]) -> None:
        """Unpacks a tar archive into the root of a container that was not started yet."""
        self._client.containers.get(container).put_archive("/", archive)

    @_ours
    def get(self, container: str, path: str) -> BinaryIO:
        """A tar archive of what lies at `path`."""
        chunks, _ = self._client.containers.get(container).get_archive(path)
        return cast(BinaryIO, io.BufferedReader(_Chunks(iter(chunks))))

    @_ours
    def start(self, container: str) -> None:
        self._client.containers.get(container).start()

    @_ours
    def attach(self, container: str) -> Attached:
        """What its first process will write, where it has not started yet."""
        wanted = {"stdout": 1, "stderr": 1, "stream": 1}
        return Attached(self._api.attach_socket(container, params=wanted))

    @_ours
    def commit(self, container: str, repository: str, tag: str, labels: Mapping[str, str]) -> None:
        self._client.containers.get(container).commit(repository=repository, tag=tag, changes=_changes(labels))

    @_ours
    def state(self, container: str) -> Mapping[str, Any] | None:
        """Docker's `State` of it; None when it has been removed."""
        try:
            return cast(Mapping[str, Any], self._api.inspect_container(container)["State"])
        except NotFound:
            return None

    @_ours
    def ran_out_of_memory(self, container: str) -> bool:
        """Whether anything in it was killed for that. Waits a little: Docker tells of it when it has heard of it."""
        deadline = time.monotonic() + _TOLD_S
        while time.monotonic() < deadline:
            wanted = {"container": container, "event": "oom"}
            if any(self._client.events(since=0, until=int(time.time()) + 1, filters=wanted, decode=True)):
                return True
        return False

    @_ours
    def exit_code(self, container: str) -> int | None:
        """Of one that has ended, and removed itself: Docker's events still tell of it. None where they do not."""
        wanted = {"container": container, "event": "die"}
        for event in self._client.events(since=0, until=int(time.time()) + 1, filters=wanted, decode=True):
            code = str(event.get("Actor", {}).get("Attributes", {}).get("exitCode", ""))
            return int(code) if code.isdecimal() else None
        return None

    @_ours
    def inspect(self, container: str) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self._api.inspect_container(container))

    @_ours
    def logs(self, container: str) -> str:
        try:
            return bytes(self._client.containers.get(container).logs(tail=20)).decode(errors="replace")
        except NotFound:
            return ""

    @_ours
    def remove(self, container: str) -> None:
        """Kills it if it runs. Harmless when it is gone, or on its way."""
        deadline = time.monotonic() + _ENDS_S
        while True:
            try:
                return self._client.containers.get(container).remove(force=True)
            except NotFound:
                return None
            except APIError as error:
                if error.status_code == 409:  # "removal is already in progress": it removes itself
                    return None
                if _STILL_ENDS not in str(error.explanation) or time.monotonic() > deadline:
                    raise

    @_ours
    def remove_abandoned(self) -> None:
        """Containers that were made, and whose makers were killed before they started or removed them."""
        wanted: dict[str, str | list[str] | bool] = {"label": OWNER_LABEL, "status": _NOT_STARTED}
        for container in self._client.containers.list(all=True, filters=wanted, ignore_removed=True):
            if is_gone(container.labels.get(OWNER_LABEL, "")):
                self.remove(str(container.id))

    @_ours
    def labelled(self, session: str) -> tuple[str, ...]:
        """Containers of one session, also stopped ones."""
        found = self._client.containers.list(all=True, filters={"label": f"{LABEL}={session}"}, ignore_removed=True)
        return tuple(str(container.id) for container in found)

    def close(self) -> None:
        self._client.close()


class Attached:
    """What the first process of a container writes. Nothing of it is read before `said`: it may say little."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def said(self) -> str:
        """Of a container that has ended."""
        data, until = b"", time.monotonic() + _TOLD_S
        poll = select.poll()
        poll.register(self._stream.fileno(), select.POLLIN)
        with contextlib.suppress(OSError):
            while len(data) < _MOST_SAID_BYTES and poll.poll(max(until - time.monotonic(), 0) * 1000):
                if not (more := os.read(self._stream.fileno(), _MOST_SAID_BYTES)):
                    break
                data += more
        return _without_frames(data).decode("utf-8", "replace")

    def close(self) -> None:
        """The SDK gives the stream of a socket, which stays open without it, and a response that holds both."""
        own = self._stream._sock
        self._stream._response.close()
        self._stream.close()
        own.close()


def _without_frames(data: bytes) -> bytes:
    """Docker sends both outputs in one stream, in frames of its own."""
    said = b""
    while len(data) >= _FRAME.size:
        _, size_bytes = _FRAME.unpack_from(data)
        said += data[_FRAME.size : _FRAME.size + size_bytes]
        data = data[_FRAME.size + size_bytes :]
    return said


class _Chunks(io.RawIOBase):
    """An iterator of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or next(self._chunks, b"")
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


def _changes(labels: Mapping[str, str]) -> list[str]:
    return [f"LABEL {key}={value}" for key, value in labels.items()]


@contextlib.contextmanager
def engine(daemon: Daemon, *, may_start: bool = True) -> Iterator[Engine]:
    """A connection for the length of a `with`."""
    connected = connect(daemon, may_start=may_start)
    try:
        yield connected
    finally:
        connected.close()


def connect(daemon: Daemon, *, may_start: bool = True) -> Engine:
    """The engine of DOCKER_HOST, the machine's own, ours if it runs, or ours started now."""
    named = os.environ.get("DOCKER_HOST", "")
    if named and not named.startswith("unix://"):
        raise FacilityError(
            f"the Docker engine at {named} runs on another machine and cannot read the capsule",
            hint="unset DOCKER_HOST, or use --runtime local",
        )
    urls = [named] if named else ["unix:///var/run/docker.sock", daemon.url]
    for url in urls:
        if (found := _answering(url)) is not None:
            return found
    if not may_start or named:
        raise FacilityError(f"no Docker engine answers at {' or '.join(urls)}", hint=_HINT)
    daemon.start(lambda: answers_at(daemon.url))
    started = _answering(daemon.url)
    if started is None:
        raise FacilityError(f"the Docker engine started at {daemon.url} does not answer", hint=f"see {daemon.log}")
    return started


def unavailable(daemon: Daemon) -> str | None:
    """Why there is no engine that replays can use and none can be started; None where there is, or can be."""
    try:
        with contextlib.closing(connect(daemon, may_start=False)) as found:
            return _MAPPED if found.maps_users() else None
    except PrismError as error:
        if os.environ.get("DOCKER_HOST"):
            return f"{error}: {error.hint}"
        reason = daemon.cannot_start()
        return None if reason is None else f"{error}: {reason}"


def _answering(url: str) -> Engine | None:
    path = url.removeprefix("unix://")
    if path != url and not (os.access(path, os.R_OK | os.W_OK) and _listens(path)):
        return None
    try:
        found = Engine(url)
    except (DockerException, requests.RequestException):
        return None
    try:
        found.version()
    except RuntimeFailure:
        found.close()
        return None
    return found


def _listens(path: str) -> bool:
    """Asked before Docker's library is: that leaves a socket open where nobody answers."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_CALL_S)
        try:
            sock.connect(path)
        except OSError:
            return False
    return True


def answers_at(url: str) -> bool:
    found = _answering(url)
    if found is not None:
        found.close()
    return found is not None
