"""A page in a real browser: when the screen appears, its panes are filled."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from browser import browser, needs_browser
from capsules import make_capsule
from incident_run import write_run
from spawning import Spawn
from test_in_a_browser import BOUND_S, free_port
from waiting import wait_for

pytestmark = needs_browser
# What came over the connection until the terminal could be seen for the first time.
WATCH = """
let came = "";
window.WebSocket = class extends WebSocket {
  constructor(...address) {
    super(...address);
    this.addEventListener("message", ({ data }) => {
      if (data instanceof ArrayBuffer) came += new TextDecoder().decode(data);
    });
  }
};
const look = () => {
  const terminal = document.querySelector(".textual-terminal");
  if (terminal && Number(getComputedStyle(terminal).opacity) > 0) window.seen = came;
  else requestAnimationFrame(look);
};
look();
"""


class Page:
    """One tab, by Chromium's own protocol."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._connection, self._number = connection, 0

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._connection.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._connection.receive_json()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def value(self, expression: str) -> Any:
        return (await self.ask("Runtime.evaluate", expression=expression))["result"].get("value")

    async def until(self, expression: str) -> Any:
        while not (found := await self.value(expression)):
            await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def tab() -> AsyncIterator[Page]:
    with browser("--window-size=1600,1000", "--remote-debugging-port=0", "about:blank") as started:
        assert started.stderr is not None
        port = re.search(r":(\d+)/", await asyncio.to_thread(where_it_listens, started.stderr))
        assert port is not None, "the browser has ended"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port[1]}/json") as answer:
                (address,) = [one["webSocketDebuggerUrl"] for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(address) as connection:
                yield Page(connection)


def where_it_listens(said: Iterable[str]) -> str:
    return next((line for line in said if "DevTools listening" in line), "")


async def seen_at_first(address: str) -> str:
    async with asyncio.timeout(BOUND_S), tab() as page:
        await page.ask("Page.enable")
        await page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        await page.ask("Page.navigate", url=address)
        return str(await page.until("window.seen"))


def served(
    what: Path, talk: Path, spawn: Spawn, prismdbg_command: tuple[str, ...]
) -> tuple[subprocess.Popen[str], str]:
    with talk.open("w") as stderr:
        command = (*prismdbg_command, "open", str(what), "--web", "--port", str(free_port()))
        server = spawn(*command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    said = wait_for(lambda: re.search(r"(http://\S+\?key=\S+) ", talk.read_text()), BOUND_S, "the address")
    return server, said[1]


@pytest.mark.parametrize(
    ("is_run", "words"),
    [
        (False, ("read-only", "0.1", "all_reduce in world", "out[0]", "min", "rank 1")),
        (True, ("recorded", "raised at 1.1: ValueError", "all_reduce", "awaited")),
    ],
)
def test_its_panes_are_filled_when_it_appears(
    tmp_path: Path, spawn: Spawn, prismdbg_command: tuple[str, ...], is_run: bool, words: tuple[str, ...]
) -> None:
    what = write_run(tmp_path / "run").path if is_run else make_capsule(tmp_path / "capsule").path
    server, address = served(what, tmp_path / "talk", spawn, prismdbg_command)
    seen = asyncio.run(seen_at_first(address))
    server.send_signal(signal.SIGINT)
    assert server.wait(BOUND_S) in (0, 130)
    plain = re.sub(r"\x1b\[[0-9;:?]*[A-Za-z]", "", seen)
    assert not [word for word in words if word not in plain], plain[-3000:]
