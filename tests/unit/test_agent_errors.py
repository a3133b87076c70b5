"""What an agent cannot do ends the client's command with the exit code of the error's own kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismdbg import errors
from prismdbg.protocol.client import AgentClient, AgentError
from prismdbg.rank.agent import Agent


def raises(error: Exception) -> Any:
    def verb(_: object) -> dict[str, Any]:
        raise error

    return verb


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "a.sock")
    agent.verbs |= {
        "usage": raises(errors.UsageError("the rank is parked already", hint="try again")),
        "capsule": raises(errors.CapsuleError("no")),
        "runtime": raises(errors.RuntimeFailure("no")),
        "defect": raises(ValueError("x")),
    }
    agent.start()
    yield agent


@pytest.mark.parametrize(
    ("verb", "code"), [("usage", 2), ("capsule", 3), ("runtime", 4), ("defect", 1), ("a verb of tomorrow", 2)]
)
def test_the_kind_of_an_error_decides_the_exit_code(agent: Agent, verb: str, code: int) -> None:
    with AgentClient(agent.path) as client, pytest.raises(AgentError) as caught:
        client.ask(verb)
    assert caught.value.exit_code == code


def test_the_words_are_the_agents_own(agent: Agent) -> None:
    with AgentClient(agent.path) as client, pytest.raises(AgentError, match=r"^the rank is parked already$") as caught:
        client.ask("usage")
    assert (caught.value.hint, caught.value.kind) == ("try again", "UsageError")


def test_a_kind_of_a_newer_agent_is_a_failure() -> None:
    assert AgentError("x", kind="ErrorOfTomorrow").exit_code == 1
