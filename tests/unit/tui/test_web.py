"""Who may reach the screen in a browser: nobody without the key, and no page of another origin."""

from __future__ import annotations

import asyncio
import pkgutil
import socket
from collections.abc import Mapping
from typing import NoReturn

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, make_mocked_request
from prismdbg_tui.browser.server import KEY, GuardedServer, screen_command
from prismdbg_tui.start import on_terminal
from textual.driver import Driver
from textual_serve.server import Server

SECRET = "secret"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def asked(
    path: str, key: str | None, *, headers: Mapping[str, str] | None = None, run: str = "", has_moments: bool = True
) -> tuple[int, str]:
    """The status, and the text without the port."""

    async def ask() -> tuple[int, str]:
        port = free_port()
        server = GuardedServer(["true"], port, SECRET, run, has_moments=has_moments)
        async with (
            TestServer(await server._make_app(), host="127.0.0.1", port=port),
            aiohttp.ClientSession() as session,
            session.get(f"{server.public_url}{path}", params={KEY: key} if key else {}, headers=headers) as response,
        ):
            return response.status, (await response.text()).replace(f":{port}", "")

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        (SECRET, {}, 200),
        (None, {}, 403),
        ("wrong", {}, 403),
        (SECRET, {"Host": "elsewhere:80"}, 403),
        (SECRET, {"Origin": "http://elsewhere"}, 403),
    ],
)
def test_the_key_and_the_origin(key: str | None, headers: dict[str, str], status: int) -> None:
    got, _ = asked("", key, headers=headers)
    assert got == status


def test_the_browser_keeps_the_key() -> None:
    async def ask() -> list[int]:
        port = free_port()
        server = GuardedServer(["true"], port, SECRET)
        async with (
            TestServer(await server._make_app(), host="127.0.0.1", port=port),
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        ):
            first = await session.get(server.address)
            return [first.status, (await session.get(server.public_url)).status]

    assert asyncio.run(ask()) == [200, 200]


def test_a_page_that_is_open_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp would wait for it, and so would the rank behind it."""
    is_open = asyncio.Event()

    async def stays(_server: Server, _request: web.Request) -> NoReturn:
        is_open.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def is_cancelled() -> bool:
        server = GuardedServer(["true"], 8001, SECRET)
        page = asyncio.create_task(server.handle_websocket(make_mocked_request("GET", "/ws")))
        await is_open.wait()
        await server.on_shutdown(web.Application())
        await asyncio.wait([page], timeout=30)
        return page.cancelled() and not server._visits

    monkeypatch.setattr(Server, "handle_websocket", stays)
    assert asyncio.run(is_cancelled())


@pytest.mark.parametrize(
    ("path", "status"),
    [("/open/617", 200), ("/debug/0", 200), ("/rm/0", 404), ("/open/-1", 404), ("/open/1;id", 404), ("/open/1", 403)],
)
def test_a_rank_of_a_run_has_a_page_with_a_connection_of_its_own(path: str, status: int) -> None:
    got, text = asked(path, SECRET if status != 403 else None, run="/runs/a b")
    assert got == status
    assert (f'"ws://127.0.0.1{path}/ws"' in text) is (status == 200)


def test_of_a_capsule_there_are_no_pages_of_ranks() -> None:
    got, _ = asked("/open/0", SECRET)
    assert got == 404


@pytest.mark.parametrize(("path", "status"), [("/at/1.1", 404), ("/open/3/at/1.1", 200)])
def test_a_screen_that_knows_no_moments_has_no_pages_of_them(path: str, status: int) -> None:
    got, _ = asked(path, SECRET, run="/runs/emulated", has_moments=False)
    assert got == status


def test_what_the_server_starts_is_a_screen_and_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    (driver,) = (
        word.removeprefix("TEXTUAL_DRIVER=") for word in screen_command("") if word.startswith("TEXTUAL_DRIVER=")
    )
    monkeypatch.setenv("TEXTUAL_DRIVER", driver)
    assert on_terminal()
    assert issubclass(pkgutil.resolve_name(driver), Driver)
