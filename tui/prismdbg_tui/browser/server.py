"""The same screen in a browser of this machine: textual-serve, bound to the loopback, behind a key of its own.

A page elsewhere, or another user of the machine, must not reach a debugger: without the key, or from another origin,
nothing is answered.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from prismdbg.errors import FacilityError
from prismdbg_tui.start import WEB_DRIVER, WEB_PAGE, own_keys

HOST = "127.0.0.1"
KEY = "key"
_MAIN = "from prismdbg_tui.browser.page import main; main()"
_RANK = "/{command:open|debug}/{rank:[0-9]{1,8}}"
_MOMENT = "/at/{moment:[0-9]{1,9}(?:[.][0-9]{1,9}){0,2}}"
_SOCKET = "/ws"
_PAGES = Path(__file__).with_name("pages")


def serve(arguments: Sequence[str], port: int, talk: TextIO, run: str = "", *, has_moments: bool = True) -> int:
    """Until interrupted; each visit runs `prismdbg` with `arguments` anew. `run`: whose ranks have pages of their own,
    to which the screen of all ranks leads. has_moments: whether the first screen can be opened at a moment, too."""
    own_keys()  # what is wrong with the user's is said here, not in a page
    command = screen_command(f"http://{HOST}:{port}", *arguments)
    server = GuardedServer(command, port, secrets.token_urlsafe(16), run, has_moments=has_moments)
    print(f"prismdbg: {server.address}   (ctrl+c ends it)", file=talk, flush=True)
    try:
        server.serve()
    except OSError as error:
        raise FacilityError(
            f"port {port} cannot be used: {error.strerror}", hint="choose another one with --port"
        ) from error
    return 0


def screen_command(page: str, *arguments: str) -> list[str]:
    """What draws the page. No shell stays between the server and the screen, whose driver ends with the server."""
    environment = (f"TEXTUAL_DRIVER={WEB_DRIVER}", f"{WEB_PAGE}={page}")
    return ["exec", "env", *environment, sys.executable, "-c", _MAIN, *arguments]


class GuardedServer(Server):
    def __init__(self, command: Sequence[str], port: int, key: str, run: str = "", *, has_moments: bool = True) -> None:
        super().__init__(shlex.join(command), host=HOST, port=port, title="prismdbg", templates_path=_PAGES)
        self._key = key
        self._cookie = f"{KEY}-{port}"  # a browser keeps one of each name for all ports of this machine
        self._run = run
        self._has_moments = has_moments
        self._visits: set[asyncio.Task[Any]] = set()  # pages that are open

    @property
    def address(self) -> str:
        """With the key; the browser keeps it in a cookie."""
        return f"{self.public_url}/?{KEY}={self._key}"

    def initialize_logging(self) -> None:
        """The address was said already."""

    async def on_startup(self, app: web.Application) -> None:
        """Nor is a logo needed."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Pages that are open end at once: aiohttp would wait for them."""
        for visit in self._visits:
            visit.cancel()

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        visit = asyncio.current_task()
        assert visit is not None
        self._visits.add(visit)
        try:
            return await super().handle_websocket(request)
        finally:
            self._visits.discard(visit)

    async def _make_app(self) -> web.Application:
        app: web.Application = await super()._make_app()
        app.middlewares.append(self._guard)
        moments = (_MOMENT,) if self._has_moments else ()
        for page in (*moments, *((_RANK, _RANK + _MOMENT) if self._run else ())):
            app.add_routes([web.get(page, self._page), web.get(page + _SOCKET, self._page_socket)])
        return app

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """The first page, with another connection."""
        page = await self.handle_index(request)
        assert isinstance(page, web.Response)
        own = urlsplit(self.public_url).netloc
        page.text = (page.text or "").replace(f"//{own}{_SOCKET}", f"//{own}{request.path}{_SOCKET}")
        return page

    async def _page_socket(self, request: web.Request) -> web.StreamResponse:
        chosen = request.match_info
        server = copy(self)
        if "rank" in chosen:
            command, rank = chosen["command"], chosen["rank"]
            page = f"{self.public_url}/{command}/{rank}"
            server.command = shlex.join(screen_command(page, command, self._run, "--rank", rank))
        if "moment" in chosen:
            server.command += f" --at {chosen['moment']}"
        return await server.handle_websocket(request)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        own = urlsplit(self.public_url).netloc
        origin = request.headers.get("Origin")
        if request.host != own or (origin is not None and urlsplit(origin).netloc != own):
            raise web.HTTPForbidden(text="prismdbg accepts only requests to its own address")
        given = request.query.get(KEY) or request.cookies.get(self._cookie, "")
        if not secrets.compare_digest(given.encode(), self._key.encode()):
            raise web.HTTPForbidden(text="the key is missing: use the address that prismdbg printed")
        response = await handler(request)
        if KEY in request.query and not response.prepared:
            response.set_cookie(self._cookie, self._key, httponly=True, samesite="Strict")
        return response
