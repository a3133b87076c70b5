"""Values as variables: what a rank rendered at once, and what is asked for when it is opened."""

from __future__ import annotations

from typing import Any

import pytest
from dap_client import validator

from prismdbg.dap.client import with_hint
from prismdbg.dap.handles import Handles
from prismdbg.dap.values import Held, Piece, Variables
from prismdbg.errors import UsageError
from prismdbg.expr.place import complaint

TENSOR = {
    "kind": "tensor", "shape": [2], "dtype": "float32", "device": "cpu", "requires_grad": False, "slice": "",
    "stats": {"min": 1.0, "max": 2.0, "mean": 1.5, "std": 0.5, "nan": 0, "inf": 0}, "histogram": None,
    "values": [1.0, 2.0],
}  # fmt: skip


ALL = Piece()


def scalar(value: Any) -> dict[str, Any]:
    return {"kind": "scalar", "type": type(value).__name__, "value": value}


def no_question(text: str) -> dict[str, Any]:
    raise AssertionError(f"asked for {text}")


def opened(variables: Variables, value: dict[str, Any], text: str, piece: Piece = ALL, ask: Any = no_question) -> Any:
    found = variables.inside(Held(frame=2, text=text, value=value), piece, ask)
    for variable in found:
        validator("Variable").validate(variable)
    return found


def test_what_was_rendered_is_not_asked_for_again() -> None:
    value = {"kind": "mapping", "type": "dict", "length": 3, "items": [["'a'", scalar(1)], ["0: float32[2]", TENSOR]]}
    first, tensor, rest = opened(Variables(), value, "local.state")
    assert (first["name"], first["value"], first["evaluateName"]) == ("['a']", "1", "local.state['a']")
    assert first["variablesReference"] == 0 < tensor["variablesReference"] and "evaluateName" not in tensor
    assert (rest["name"], rest["value"]) == ("...", "1 more")


@pytest.mark.parametrize("key", ["{[]}", "{{}: 1}", "[" * 100 + "]" * 100, "(" * 200, "'a'", "-" * 199 + "1"])
def test_a_key_may_be_any_text(key: str) -> None:
    """As a hostile rank may say: only a literal can be asked for by it."""
    (made,) = opened(Variables(), {"kind": "mapping", "length": 1, "items": [[key, scalar(1)]]}, "local.state")
    assert (made["name"], made.get("evaluateName")) == (f"[{key}]", "local.state['a']" if key == "'a'" else None)


def test_a_tensor_opens_and_its_memory_can_be_read() -> None:
    variables = Variables()
    made = variables.variable("x", TENSOR, "local.x", 1)
    assert variables.memory.get(int(made["memoryReference"])).text == "local.x"
    names = {each["name"]: each["value"] for each in opened(variables, TENSOR, "local.x")}
    assert names["shape"] == "(2,)" and names["max"] == "2" and "values" in names


def test_a_name_of_a_tensor_can_be_opened_as_memory_too() -> None:
    variables = Variables()
    told = {"from": "local", "name": "x", "type": "mine.Weight", "text": "float32[2] cpu"}
    made = variables.listed(told | {"tensor": True}, "local.x", 1)
    assert variables.memory.get(int(made["memoryReference"])).text == "local.x"
    for older_or_other in (told, told | {"tensor": False}):
        assert "memoryReference" not in variables.listed(older_or_other, "local.x", 1)


def test_a_long_list_is_asked_for_in_pieces() -> None:
    value = {"kind": "sequence", "type": "list", "length": 100, "items": [scalar(n) for n in range(32)]}
    asked = []

    def ask(text: str) -> dict[str, Any]:
        asked.append(text)
        first, last = text.removeprefix("(local.rows)[").removesuffix("]").split(":")
        return {"kind": "sequence", "items": [scalar(n) for n in range(int(first), int(last))]}

    piece = opened(Variables(), value, "local.rows", Piece("indexed", 30, 40), ask)
    assert [each["value"] for each in piece] == [str(n) for n in range(30, 70)]
    assert piece[0]["evaluateName"] == "local.rows[30]"
    assert asked == ["(local.rows)[32:64]", "(local.rows)[64:70]"]
    assert len(opened(Variables(), value, "local.rows", ALL, ask)) == 100
    assert opened(Variables(), value, "local.rows", Piece("named")) == []
    *shown, rest = opened(Variables(), value, "")
    assert len(shown) == 32 and rest["value"] == "68 more"


def test_parts_of_a_module_are_asked_for_by_name_or_number() -> None:
    module = {
        "kind": "module", "type": "Net", "training": True, "parameters": 3, "trainable": 3,
        "own": [["weight", "float32[3]"]], "children": [["0", "Linear"]],
    }  # fmt: skip
    _, weight, first = opened(Variables(), module, "local.net")
    assert (weight["evaluateName"], first["evaluateName"]) == ("local.net.weight", "local.net[0]")
    asked = []
    opened(
        Variables(),
        {"kind": "object", "type": "", "text": "Linear"},
        "local.net[0]",
        ask=lambda t: asked.append(t) or module,
    )
    assert asked == ["local.net[0]"]


def test_an_expression_that_is_no_name_gets_brackets() -> None:
    item = opened(Variables(), {"kind": "sequence", "type": "list", "length": 1, "items": [scalar(1)]}, "a + b")
    assert item[0]["evaluateName"] == "(a + b)[0]"


def test_a_number_of_an_earlier_stop_is_refused() -> None:
    handles: Handles[str] = Handles("variable")
    number = handles.add("x")
    handles.clear()
    assert handles.add("y") != number
    with pytest.raises(UsageError, match=f"no variable {number} here"):
        handles.get(number)


def test_an_error_in_an_expression_is_one_line_in_an_editor() -> None:
    error = complaint("max(out, foo)", 9, "unknown name 'foo'", hint="name another")
    assert with_hint(error) == "unknown name 'foo'\ntry: name another"
    assert with_hint(complaint("foo", 0, "unknown name 'foo'")) == "unknown name 'foo'"
