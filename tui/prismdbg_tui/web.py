"""The same screen in a browser of this machine: textual-serve, bound to the loopback, behind a key of its own.

A page elsewhere, or another user of the machine, must not reach a debugger: without the key, or from another origin,
nothing is answered.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from typing import TextIO
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from prismdbg.errors import FacilityError

HOST = "127.0.0.1"
KEY = "key"
_RUN = "from prismdbg.cli.main import main; main()"


def serve(arguments: Sequence[str], port: int, talk: TextIO) -> int:
    """Until interrupted; each visit runs `prismdbg` with `arguments` anew."""
    server = GuardedServer([sys.executable, "-c", _RUN, *arguments], port, secrets.token_urlsafe(16))
    print(f"prismdbg: {server.address}   (ctrl+c ends it)", file=talk, flush=True)
    try:
        server.serve()
    except OSError as error:
        raise FacilityError(f"port {port} cannot be used: {error.strerror}", hint="choose another: --port") from error
    return 0


class GuardedServer(Server):
    def __init__(self, command: Sequence[str], port: int, key: str) -> None:
        super().__init__(shlex.join(command), host=HOST, port=port, title="prismdbg")
        self._key = key

    @property
    def address(self) -> str:
        """With the key; the browser keeps it in a cookie."""
        return f"{self.public_url}/?{KEY}={self._key}"

    def initialize_logging(self) -> None:
        """The address was said already."""

    async def on_startup(self, app: web.Application) -> None:
        """Nor is a logo needed."""

    async def _make_app(self) -> web.Application:
        app: web.Application = await super()._make_app()
        app.middlewares.append(self._guard)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        own = urlsplit(self.public_url).netloc
        origin = request.headers.get("Origin")
        if request.host != own or (origin is not None and urlsplit(origin).netloc != own):
            raise web.HTTPForbidden(text="prismdbg answers at its own address alone")
        given = request.query.get(KEY) or request.cookies.get(KEY, "")
        if not secrets.compare_digest(given.encode(), self._key.encode()):
            raise web.HTTPForbidden(text="the key is missing: use the address that prismdbg printed")
        response = await handler(request)
        if KEY in request.query and not response.prepared:
            response.set_cookie(KEY, self._key, httponly=True, samesite="Strict")
        return response
