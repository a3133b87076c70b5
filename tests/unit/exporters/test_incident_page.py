"""The page for a ticket: what stands in it, that nothing of the program becomes markup, and that it needs nobody."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from capsules import make_capsule
from click.testing import CliRunner
from incident_run import HOSTILE, write_run
from tiny_log import write_training

from prismdbg.cli.main import cli

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
VOID = {"meta", "img", "input"}


class Page(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def page_of(path: Path) -> tuple[str, Page]:
    out = path.parent / "incident.html"
    ran = CliRunner().invoke(cli, ["report", str(path), "-o", str(out)])
    assert ran.exit_code == 0, ran.output
    text = out.read_text(encoding="utf-8")
    return text, Page(text)


def test_it_says_what_happened_where_and_how_to_replay_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run.capsules / "1-exception").mkdir(parents=True)
    _, page = page_of(run.path)
    for words in (
        "rank 1 raised at 1.1: ValueError: loss is not finite", "certain", "python train.py", "exit code", "torch 2.13",
        "called from", "/job/data.py:3", "holds the GIL", "allocated at", "/job/train.py:5",
        "prismdbg replay", "1-exception",
    ):  # fmt: skip
        assert words in page.text, words
    assert [tag for tag, _ in page.elements].count("svg") == 2
    assert [tag for tag, _ in page.elements].count("rect") == 4


def test_of_a_job_of_several_nodes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    node = run.nodes / "n1"
    node.mkdir(parents=True)
    (run.nodes / "job.json").write_text('{"id": "x"}')
    (node / "node.json").write_text("{}")
    run.supervisor_json.rename(node / "supervisor.json")
    (run.capsules / "1-exception").mkdir(parents=True)

    _, page = page_of(run.path)

    for words in ("prismdbg replay", "1-exception", "exit code", "ended"):
        assert words in page.text, words


def test_a_capsule_that_was_removed_is_not_offered(tmp_path: Path) -> None:
    _, page = page_of(write_run(tmp_path / "run").path)
    assert "has no capsule" in page.text and "prismdbg replay" not in page.text


def test_nothing_of_the_program_becomes_markup(tmp_path: Path) -> None:
    plain, hostile = (
        page_of(write_run(tmp_path / name / "run", said).path) for name, said in (("a", "said"), ("b", HOSTILE))
    )
    assert [tag for tag, _ in hostile[1].elements] == [tag for tag, _ in plain[1].elements]
    assert "<script>alert(1)</script>" in hostile[1].text  # as words
    assert all(sign.isprintable() or sign == "\n" for sign in hostile[0])
    assert not [attrs for _, attrs in hostile[1].elements if any(name.startswith("on") for name in attrs)]


def test_it_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    text, page = page_of(write_run(tmp_path / "run", HOSTILE).path)
    assert not {tag for tag, _ in page.elements} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    }
    assert not [attrs for _, attrs in page.elements if {"src", "href", "style"} & attrs.keys()]
    (policy,) = [attrs["content"] for tag, attrs in page.elements if tag == "meta" and "http-equiv" in attrs]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in text and "@import" not in text


def test_secrets_are_redacted(tmp_path: Path) -> None:
    text, _ = page_of(write_run(tmp_path / "run", f"401 for {TOKEN} with 0123456789abcdef").path)
    assert TOKEN not in text and "0123456789abcdef" not in text and "&lt;redacted&gt;" in text


def test_of_a_capsule(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    _, page = page_of(tmp_path / "capsule")
    assert "origin" in page.text and f"prismdbg debug {tmp_path / 'capsule'}" in page.text
    assert f"prismdbg inspect {tmp_path / 'capsule'} --secrets" in page.text


def test_of_logs_alone(tmp_path: Path) -> None:
    write_training(tmp_path / "run" / "ranks" / "0")
    _, page = page_of(tmp_path / "run")
    assert "has no capsule" in page.text and "Diagnosis" in page.text
