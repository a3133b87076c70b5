"""`--web` as a browser sees it: an address with its key, nothing without it, and the screen behind it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from capsules import make_capsule
from chain import Taken
from incident_run import write_run
from prismdbg_tui.browser.server import GuardedServer
from prismdbg_tui.session.views import Phase
from prismdbg_tui.start import WEB_DRIVER
from spawning import Spawn
from waiting import wait_for

BOUND_S = 240.0  # the first container of an engine waits for its image to be made
LOOKING, STANDS, ALL_RANKS = Phase.LOOKING.value.encode(), b"stopped at 0.0", b"raised at 1.1: ValueError"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_browser_with_the_key_sees_the_screen_and_at_a_page_of_its_own_a_moment(
    tmp_path: Path, spawn: Spawn, prismdbg_command: tuple[str, ...]
) -> None:
    capsule, talk = make_capsule(tmp_path / "capsule").path, tmp_path / "talk"
    with talk.open("w") as stderr:
        command = (*prismdbg_command, "open", str(capsule), "--web", "--port", str(free_port()))
        server = spawn(*command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    said = wait_for(lambda: re.search(r"(http://\S+\?key=\S+) ", talk.read_text()), BOUND_S, "the address")
    address = said[1]
    screen, refused = asyncio.run(visit(address))
    assert refused == 403
    assert b"prismdbg" in screen and LOOKING in screen
    base, _, key = address.partition("/?")
    page, lines = asyncio.run(at_moment(base, key, "1.1", server.pid))
    assert "googleapis" not in page and f"{base.removeprefix('http')}/at/1.1/ws" in page
    assert any(line[-2:] == ["--at", "1.1"] for line in lines)
    server.send_signal(signal.SIGINT)
    assert server.wait(BOUND_S) in (0, 130), talk.read_text()
    assert "Traceback" not in talk.read_text()


def test_a_rank_is_seen_at_a_page_of_its_own_and_one_that_cannot_be_drawn_says_why(
    tmp_path: Path, spawn: Spawn, prismdbg_command: tuple[str, ...]
) -> None:
    run, talk = write_run(tmp_path / "run"), tmp_path / "talk"
    with talk.open("w") as stderr:
        command = (*prismdbg_command, "open", str(run.path), "--web", "--port", str(free_port()))
        server = spawn(*command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    said = wait_for(lambda: re.search(r"(http://\S+\?key=\S+) ", talk.read_text()), BOUND_S, "the address")
    assert asyncio.run(into_a_rank(said[1])) == "/open/1/at/1.1"
    asyncio.run(page_until(said[1], "/debug/0", b"no capsule of rank 0"))
    asyncio.run(page_until(said[1], "/open/0", b"not replayable"))
    asyncio.run(page_until(said[1], "/at/0.1", b"opens ranks at 0.1"))
    server.send_signal(signal.SIGINT)
    assert server.wait(BOUND_S) in (0, 130), talk.read_text()


async def page_until(address: str, page: str, text: bytes) -> None:
    """Until the screen of that page shows `text`."""
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await first_page(session, address)
        shown = b""
        origin = f"ws://{urlsplit(address).netloc}"
        async with session.ws_connect(f"{origin}{page}/ws?width=100&height=30") as connection:
            while text not in shown:
                message = await connection.receive()
                assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), shown
                shown += message.data if isinstance(message.data, bytes) else b""


async def at_moment(address: str, key: str, moment: str, server: int) -> tuple[str, list[list[str]]]:
    """The page, and the command lines of what draws its screen."""
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await first_page(session, f"{address}/?{key}")
        async with session.get(f"{address}/at/{moment}") as page:
            assert page.status == 200
            text = await page.text()
        shown = b""
        async with session.ws_connect(f"{address.replace('http', 'ws')}/at/{moment}/ws?width=100&height=30") as socket:
            while LOOKING not in shown:
                message = await socket.receive()
                shown += message.data if isinstance(message.data, bytes) else b""
            return text, [screen.cmdline() for screen in psutil.Process(server).children(recursive=True)]


def test_one_browser_may_see_two_screens() -> None:
    """It keeps a cookie for all ports of a machine: the second server's takes the place of none of the first's."""

    async def answered(request: web.Request) -> web.StreamResponse:
        return web.Response(text="seen")

    async def visit(server: GuardedServer, query: str, cookies: str) -> web.StreamResponse:
        headers = {"Host": urlsplit(server.public_url).netloc, "Cookie": cookies}
        return await server._guard(make_mocked_request("GET", f"/{query}", headers=headers), answered)

    first, second = GuardedServer(["true"], 8001, "a"), GuardedServer(["true"], 8002, "b")
    jar: dict[str, str] = {}
    for server, key in ((first, "a"), (second, "b")):
        cookies = asyncio.run(visit(server, f"?key={key}", "")).cookies
        jar |= {name: morsel.value for name, morsel in cookies.items()}
    kept = "; ".join(f"{name}={value}" for name, value in jar.items())
    for server in (first, second):
        assert asyncio.run(visit(server, "", kept)).status == 200


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_screens_end_with_their_server(
    tmp_path: Path, spawn: Spawn, prismdbg_command: tuple[str, ...], number: signal.Signals
) -> None:
    capsule, talk = make_capsule(tmp_path / "capsule").path, tmp_path / "talk"
    with talk.open("w") as stderr:
        command = (*prismdbg_command, "open", str(capsule), "--web", "--port", str(free_port()))
        server = spawn(*command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    said = wait_for(lambda: re.search(r"(http://\S+\?key=\S+) ", talk.read_text()), BOUND_S, "the address")
    screens = asyncio.run(screens_of(said[1], server, number))
    assert screens
    server.wait(BOUND_S)
    wait_for(lambda: not any(screen.is_running() for screen in screens), BOUND_S, "the screen to end")


@pytest.mark.job
def test_a_replayed_rank_ends_with_its_page_its_screen_and_its_server(
    tmp_path: Path, spawn: Spawn, prismdbg_command: tuple[str, ...], nan_early: Taken
) -> None:
    """The browser goes away while the server lives; the screen is told to end; the server is."""
    talk, replays = tmp_path / "talk", ("debug", str(nan_early.capsule), "--runtime", "local")
    with talk.open("w") as stderr:
        command = (*prismdbg_command, *replays, "--web", "--port", str(free_port()))
        server = spawn(*command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    said = wait_for(lambda: re.search(r"(http://\S+\?key=\S+) ", talk.read_text()), BOUND_S, "the address")
    asyncio.run(three_ends(said[1], server))
    server.wait(BOUND_S)
    assert "Traceback" not in talk.read_text()


async def three_ends(address: str, server: subprocess.Popen[str]) -> None:
    """Of a page each; another one's screen and rank are not touched."""
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await first_page(session, address)
        socket_address = f"ws://{urlsplit(address).netloc}/ws?width=100&height=30"
        pages = [await session.ws_connect(socket_address) for _ in range(3)]
        stand = [asyncio.Event() for _ in pages]
        readers = [asyncio.create_task(read(page, stands)) for page, stands in zip(pages, stand, strict=True)]
        for stands in stand:
            await stands.wait()
        screens = psutil.Process(server.pid).children()
        replays = {screen: [screen, *screen.children(recursive=True)] for screen in screens}
        ranks = [part for parts in replays.values() for part in parts if "train.py" in " ".join(part.cmdline())]
        assert len(screens) == len(ranks) == 3
        await pages[0].close()
        while not (ended := [screen for screen, parts in replays.items() if not any(map(is_alive, parts))]):
            await asyncio.sleep(0.05)
        (first,), second = ended, next(screen for screen in screens if screen not in ended)
        del replays[first]
        second.terminate()
        await gone(replays.pop(second))
        ((_, last),) = replays.items()
        assert server.poll() is None and all(map(is_alive, last))
        server.terminate()
        await gone(last)
        await asyncio.wait(readers)


async def read(page: aiohttp.ClientWebSocketResponse, stands: asyncio.Event) -> None:
    """As a browser does, until the page is closed. `stands`: set once the rank stands."""
    shown = b""
    async for message in page:
        shown += message.data if isinstance(message.data, bytes) else b""
        if STANDS in shown:
            stands.set()


async def gone(parts: list[psutil.Process]) -> None:
    while any(map(is_alive, parts)):
        await asyncio.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """A process whose parent ended first may stay a zombie: that nobody waits for it is no fault of ours."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


BUSY = """
import prismdbg_tui.browser.driver as driver
from textual.app import App
driver.LONGEST_END_S = 0.5
class Busy(App):
    def on_mount(self):
        while True: pass
Busy().run()
"""


def test_a_screen_that_is_busy_for_ever_ends_once_nobody_is_there(
    spawn: Spawn, child_environment: dict[str, str]
) -> None:
    screen = spawn(
        sys.executable, "-c", BUSY, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**child_environment, "TEXTUAL_DRIVER": WEB_DRIVER},
    )  # fmt: skip
    assert screen.stdin is not None
    screen.stdin.close()
    assert screen.wait(BOUND_S) == 1


async def screens_of(address: str, server: subprocess.Popen[str], number: int) -> list[psutil.Process]:
    """The processes that draw the screen, seen while a page is open; the server is ended under the open page."""
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await first_page(session, address)
        shown = b""
        async with session.ws_connect(f"ws://{urlsplit(address).netloc}/ws?width=100&height=30") as connection:
            while LOOKING not in shown:
                message = await connection.receive()
                shown += message.data if isinstance(message.data, bytes) else b""
            screens = psutil.Process(server.pid).children(recursive=True)
            server.send_signal(number)
            return screens


async def into_a_rank(address: str) -> str:
    """The page that `enter` leads to from the table of all ranks, once its screen has shown that rank's log."""
    origin = f"ws://{urlsplit(address).netloc}"
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await first_page(session, address)
        shown, page = b"", ""
        async with session.ws_connect(f"{origin}/ws?width=100&height=30") as connection:
            while not page:
                message = await connection.receive()
                if isinstance(message.data, bytes):
                    if ALL_RANKS not in shown and ALL_RANKS in (shown := shown + message.data):
                        await connection.send_json(["stdin", "\r"])
                else:
                    assert message.type is aiohttp.WSMsgType.TEXT, message
                    kind, said = json.loads(message.data)
                    assert kind == "open_url" and not said["new_tab"]
                    page = str(said["url"])
    await page_until(address, page, b"not replayable")
    return page


async def first_page(session: aiohttp.ClientSession, address: str) -> None:
    while True:
        try:
            async with session.get(address) as page:
                assert page.status == 200
                return
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.05)


async def visit(address: str) -> tuple[bytes, int]:
    """What the page's connection shows at first; and what a visitor without the key gets."""
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        base = address.partition("/?")[0]
        while True:
            try:
                async with session.get(base) as stranger:
                    refused = stranger.status
                break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
        socket_address = f"ws://{urlsplit(address).netloc}/ws?width=100&height=30"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await session.ws_connect(socket_address)
        async with session.get(address) as page:
            assert page.status == 200 and "textual" in await page.text()
        shown = b""
        async with session.ws_connect(socket_address) as connection:
            while LOOKING not in shown:
                message = await connection.receive()
                if isinstance(message.data, bytes):
                    shown += message.data
                else:
                    assert message.type is aiohttp.WSMsgType.TEXT, message
        return shown, refused
