"""Which file an editor shows: its own where it is the same, else the one in the capsule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capsules import MANIFEST, RANK
from dap_client import validator
from tiny_log import write_training

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.dap.arguments import Arguments
from prismdbg.dap.sources import Sources
from prismdbg.errors import UsageError
from prismdbg.session.known import Known

TEXT = "import torch\nprint('ä')\n"


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "job" / "train.py"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.fixture
def sources(train: Path, tmp_path: Path) -> Sources:
    with CapsuleWriter(tmp_path / "capsule") as writer:
        write_training(tmp_path / "log", 1)
        writer.add_tree(layout.LOG, tmp_path / "log")
        writer.add_json(layout.RANK, RANK)
        add_files(writer, [str(train)])
        capsule = writer.finish(MANIFEST)
    return Sources(capsule, Known(files=frozenset([str(train)])))


def ask(sources: Sources, **arguments: Any) -> str:
    return str(sources.content(Arguments(arguments, "source"))["content"])


def test_a_file_that_is_here_and_the_same_is_the_editors_own(sources: Sources, train: Path) -> None:
    found = sources.of(str(train))
    validator("Source").validate(found)
    assert found == {"name": "train.py", "path": str(train)}


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_a_file_that_differs_or_is_not_here_is_shown_from_the_capsule(
    sources: Sources, train: Path, change: str
) -> None:
    train.write_text("# another\n") if change == "edited" else train.unlink()
    found = sources.of(str(train))
    validator("Source").validate(found)
    assert found["sourceReference"] > 0 and sources.of(str(train)) == found
    assert ask(sources, sourceReference=found["sourceReference"]) == TEXT
    assert ask(sources, source=found, sourceReference=0) == TEXT
    assert sources.path_of(Arguments(found, "setBreakpoints: source")) == str(train)


def test_a_library_is_not_the_programs_and_what_is_not_there_is_an_error(sources: Sources) -> None:
    library = "/usr/lib/python3/site-packages/torch/nn/modules/module.py"
    assert sources.of(library)["presentationHint"] == "deemphasize"
    with pytest.raises(UsageError, match=r"the program has no file module\.py"):
        ask(sources, source={"path": library})
    with pytest.raises(UsageError, match="no source 99 here"):
        ask(sources, sourceReference=99)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("/home/me/proj/utils.py", "/job/utils.py"),
        ("/home/me/proj/models/utils.py", "/job/models/utils.py"),
        ("/job/utils.py", "/job/utils.py"),
        ("utils.py", "/job/utils.py"),
        ("/home/me/proj/a/train.py", "/job/a/train.py"),
    ],
)
def test_of_files_of_one_name_the_one_is_meant_that_lies_alike(sources: Sources, asked: str, meant: str) -> None:
    names = "/job/models/utils.py", "/job/utils.py", "/job/a/train.py", "/job/b/train.py"
    sources = Sources(sources._capsule, Known(files=frozenset(names)))
    assert sources.path_of(Arguments({"path": asked}, "source")) == meant


def test_a_file_that_may_be_one_of_two_is_refused(sources: Sources) -> None:
    sources = Sources(sources._capsule, Known(files=frozenset(["/job/a/train.py", "/job/b/train.py"])))
    with pytest.raises(UsageError, match=r"train\.py may be /job/a/train\.py or /job/b/train\.py"):
        sources.path_of(Arguments({"path": "/home/me/train.py"}, "source"))
