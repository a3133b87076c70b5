"""Files that need a Docker engine go to one worker, as long as there is other work."""

from __future__ import annotations

from distribution import needs_docker, next_file

WITH = "tests/integration/containment/test_runtime_saves.py"
WITHOUT = "tests/integration/debugger/test_repl.py"


def test_who_has_the_engine_takes_the_first() -> None:
    assert next_file([WITH, WITHOUT], has_docker=True) == WITH


def test_who_has_none_takes_the_first_without() -> None:
    assert next_file([WITH, WITHOUT], has_docker=False) == WITHOUT


def test_where_nothing_else_waits_it_is_taken_all_the_same() -> None:
    assert next_file([WITH], has_docker=False) == WITH


def test_a_unit_test_that_names_docker_needs_none() -> None:
    assert not needs_docker("tests/unit/runtime/test_runtime_choice.py")
