"""A client of the Debug Adapter Protocol for tests: the channel that debugpy and its tests speak on. Every message in
both directions is held against Microsoft's schema."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import debugpy
from debugpy.common import messaging
from jsonschema import Draft4Validator, ValidationError
from waiting import wait_for

SCHEMA = Path(debugpy.__file__).parent / "_vendored/pydevd/_pydevd_bundle/_debug_adapter/debugProtocol.json"
OPEN = ("ProtocolMessage", "Request", "Event", "Response", "LaunchRequestArguments", "AttachRequestArguments")
BOUND_S = 120.0

Json = dict[str, Any]


@cache
def validator(name: str) -> Draft4Validator:
    return Draft4Validator({"$ref": f"#/definitions/{name}", "definitions": _definitions()})


@cache
def _definitions() -> Json:
    """As published, but names that the schema does not have are none that anybody may send."""
    definitions = json.loads(SCHEMA.read_text())["definitions"]
    for name, definition in definitions.items():
        if name not in OPEN:
            _close(definition)
    return definitions  # type: ignore[no-any-return]


def _close(schema: Json, part_of_all: bool = False) -> None:
    if "properties" in schema and not part_of_all:
        schema["additionalProperties"] = False
    for each in schema.get("allOf", ()):
        _close(each, part_of_all=True)
    for each in schema.get("properties", {}).values():
        _close(each)
    if isinstance(schema.get("items"), dict):
        _close(schema["items"])


def check(message: Json) -> None:
    """`ValidationError` where a message is not what the schema says of its kind."""
    validator(_definition_of(message)).validate(message)


def _definition_of(message: Json) -> str:
    if message["type"] == "event":
        name = _upper(message["event"]) + "Event"
    elif message["type"] == "request":
        name = _upper(message["command"]) + "Request"
    else:
        name = _upper(message["command"]) + "Response" if message["success"] else "ErrorResponse"
    if name in _definitions():
        return name
    if not name.startswith("Prismdbg"):
        raise ValidationError(f"neither in the protocol nor one of our own: {message}")
    return {"event": "Event", "request": "Request", "response": "Response"}[message["type"]]


def _upper(name: str) -> str:
    return name[:1].upper() + name[1:]


class _CheckedStream(messaging.JsonIOStream):  # type: ignore[misc]
    """Keeps what came, and what was wrong with it in either direction."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.came: list[Json] = []
        self.wrong: list[str] = []

    def read_json(self, decoder: Any = None) -> Any:
        message = super().read_json(decoder)
        plain = json.loads(json.dumps(message))
        self._check(plain)
        self.came.append(plain)
        return message

    def write_json(self, value: Any, encoder: Any = None) -> None:
        self._check(json.loads(json.dumps(value)))
        super().write_json(value, encoder)

    def _check(self, message: Json) -> None:
        try:
            check(message)
        except ValidationError as error:
            self.wrong.append(f"{error.message} in {message}")


def over_socket(connection: socket.socket) -> Editor:
    """Closing it ends what waits for it at the other end, too."""
    stream: Any = connection.makefile("rwb", 0)
    return Editor(stream, stream, lambda: connection.shutdown(socket.SHUT_RDWR))


class Editor:
    """`reader` and `writer`: from and to the adapter. Every wait has a bound, and finds messages that are wrong."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO, close: Callable[[], object] = lambda: None) -> None:
        self._stream = _CheckedStream(reader, writer, "adapter", close)
        self._channel = messaging.JsonMessageChannel(self._stream, self)
        self._events_taken = 0
        self._is_closed = threading.Event()
        self._channel.start()

    def event(self, event: Any) -> None:
        """Of the channel: it is kept by the stream."""

    def disconnect(self) -> None:
        """Of the channel: the adapter closed its end."""
        self._is_closed.set()

    @property
    def came(self) -> list[Json]:
        assert not self._stream.wrong, self._stream.wrong
        return list(self._stream.came)

    def send(self, command: str, **arguments: Any) -> Any:
        return self._channel.send_request(command, arguments)

    def response(self, sent: Any) -> Json:
        wait_for(lambda: sent.response is not None, BOUND_S, f"the answer to {sent.command}")
        return next(m for m in self.came if m["type"] == "response" and m["request_seq"] == sent.seq)

    def ask(self, command: str, **arguments: Any) -> Json:
        response = self.response(self.send(command, **arguments))
        assert response["success"], response
        return response.get("body", {})  # type: ignore[no-any-return]

    def refused(self, command: str, **arguments: Any) -> str:
        """The message of the error that answers a request."""
        response = self.response(self.send(command, **arguments))
        assert not response["success"], response
        return str(response["message"])

    def next_event(self, name: str, bound_s: float = BOUND_S) -> Json:
        """The body of the next event of this name; those before it are passed."""

        def found() -> Json | None:
            came = self.came
            while self._events_taken < len(came):
                message = came[self._events_taken]
                self._events_taken += 1
                if message.get("event") == name:
                    return message
            return None

        return wait_for(found, bound_s, f"the event {name}").get("body", {})  # type: ignore[union-attr]

    def events(self, name: str) -> list[Json]:
        return [message["body"] for message in self.came if message.get("event") == name]

    def printed(self, category: str) -> str:
        return "".join(body["output"] for body in self.events("output") if body["category"] == category)

    def stopped_by(self, command: str, **arguments: Any) -> Json:
        """Where the rank stands after a request that moves it."""
        self.ask(command, **arguments)
        return self.next_event("stopped")

    def until_closed(self, bound_s: float = BOUND_S) -> None:
        wait_for(self._is_closed.is_set, bound_s, "the adapter to close its end")

    def close(self) -> None:
        self._channel.close()
