"""Who may reach the screen in a browser: nobody without the key, and no page of another origin."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from prismdbg_tui.web import KEY, GuardedServer

SECRET = "secret"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


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
    async def ask() -> int:
        port = free_port()
        server = GuardedServer(["true"], port, SECRET)
        async with (
            TestServer(await server._make_app(), host="127.0.0.1", port=port),
            aiohttp.ClientSession() as session,
            session.get(server.public_url, params={KEY: key} if key else {}, headers=headers) as response,
        ):
            return response.status

    assert asyncio.run(ask()) == status


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
