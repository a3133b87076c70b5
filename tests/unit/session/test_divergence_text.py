"""The story of a divergence, from events alone."""

from __future__ import annotations

from typing import Any

from prismdbg.session.divergence_text import headline, render_divergence

LIBRARY = {"filename": "/v/site-packages/torch/c10d.py", "line": 1, "name": "all_reduce"}


def frames(line: int) -> list[dict[str, Any]]:
    return [LIBRARY, {"filename": "/job/train.py", "line": line, "name": "main"}]


def recorded(**changes: Any) -> dict[str, Any]:
    return {
        "moment": "2.1",
        "profiling_name": "all_reduce",
        "process_group": "0",
        "input_sizes": [[4, 2]],
        "input_dtypes": ["float32"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["float32"],
        "reduce_op": "SUM",
        "root": None,
        "tag": None,
        "frames": frames(70),
        **changes,
    }


def called(**changes: Any) -> dict[str, Any]:
    return {
        "moment": "2.1",
        "profiling_name": "all_reduce",
        "process_group": "0",
        "inputs": ["float32[4, 2]"],
        "outputs": ["float32[4, 2]"],
        "reduce_op": "SUM",
        "root": None,
        "tag": None,
        "frames": frames(80),
        **changes,
    }


def event(**changes: Any) -> dict[str, Any]:
    return {
        "event": "diverged",
        "moment": "2.1",
        "expected": recorded(),
        "actual": called(profiling_name="broadcast", root=0),
        "differences": [
            {"field": "op", "expected": "all_reduce", "actual": "broadcast", "structural": True},
            {"field": "root", "expected": "-1", "actual": "0", "structural": True},
        ],
        "history": [recorded(moment="1.7", frames=frames(60)), recorded(moment="1.8", frames=[])],
        "tally": {},
        **changes,
    }


def row(text: str, title: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(title))


def test_another_call_stands_beside_the_recorded_one() -> None:
    text = render_divergence(event())
    assert text.startswith("diverged at 2.1: this call differs from the recorded call in: op, root")
    assert row(text, "op").split() == ["op", "all_reduce", "broadcast", "<-"]
    assert row(text, "inputs").split("  ")[1:] and "<-" not in row(text, "inputs")
    assert "/job/train.py:70 in main" in row(text, "line") and "/job/train.py:80 in main" in row(text, "line")
    assert "a different path" in text.splitlines()[-1]


def test_columns_are_aligned() -> None:
    lines = render_divergence(event()).splitlines()
    start = lines[2].index("now")
    table = lines[3 : lines.index("", 3)]
    assert all(line[start - 1] == " " for line in table if len(line) > start)


def test_the_groups_last_calls_with_the_programs_own_lines() -> None:
    text = render_divergence(event())
    assert "the last of group 0, as recorded:" in text
    assert row(text, "1.7").endswith("train.py:60")
    assert "float32[4, 2]" in row(text, "1.8")


def test_other_values_are_told_apart_from_another_call() -> None:
    sent = {"field": "sent", "expected": "00aa", "actual": "00bb", "structural": False}
    text = render_divergence(event(actual=called(), differences=[sent], history=[]))
    assert "all_reduce sends different values from the recorded ones" in text
    assert row(text, "sent").split() == ["sent", "fingerprint", "00aa", "fingerprint", "00bb", "<-"]
    assert "no collective of group 0 came before it" in text
    assert "number of threads" in text.splitlines()[-1]


def test_a_group_is_called_by_its_title_on_both_sides() -> None:
    told = event(actual=called(group_title="dp"))
    text = render_divergence(told)
    assert "the last of group dp, as recorded:" in text
    assert row(text, "group").split() == ["group", "dp", "dp"]
    other = render_divergence(event(expected=recorded(process_group="1"), actual=called(group_title="dp")))
    assert row(other, "group").split()[1:3] == ["1", "dp"]


def test_a_call_that_the_record_does_not_have() -> None:
    extra = {"field": "call", "expected": "3 recorded collectives still expected", "actual": "x", "structural": True}
    told = event(expected=None, differences=[extra])
    assert headline(told) == "broadcast is not in the recording; 3 recorded collectives still expected"
    assert "runs longer" in render_divergence(told)


def test_the_source_is_shown_where_there_is_some() -> None:
    assert "\n\n->  80  dist.broadcast(x)\n\n" in render_divergence(event(), ["->  80  dist.broadcast(x)"])


def test_long_lists_of_tensors_are_cut() -> None:
    text = render_divergence(event(actual=called(inputs=[f"float32[{n}]" for n in range(100)])))
    assert "... (100)" in text and "float32[50]" not in text
