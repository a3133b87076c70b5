"""The interpreter that is copied for the first process of a container has all that the starter imports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from prismdbg.runtime import own_python
from prismdbg.runtime.starter_spec import starter_file


def test_the_copy_imports_the_starter_from_its_own_files(tmp_path: Path) -> None:
    made = own_python.own_python(tmp_path)
    program = (
        "import json, sys; sys.path.append(sys.argv[1]); import starter\n"
        "print(json.dumps([m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)]))"
    )
    command = [*made.command, "-I", "-S", "-B", "-c", program, str(starter_file().parent)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    files = {Path(file) for file in json.loads(ran.stdout)}
    foreign = {file for file in files if not file.is_relative_to(made.folder)}
    assert {file.parent for file in foreign} == {starter_file().parent}


def test_a_module_that_puts_another_one_in_its_place_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As collections.abc does from Python 3.13 on."""
    package = tmp_path / "outer"
    package.mkdir()
    (tmp_path / "starter.py").write_text("import outer.name\n")
    (package / "__init__.py").touch()
    (package / "other.py").touch()
    (package / "name.py").write_text("import sys\nfrom outer import other\nsys.modules[__name__] = other\n")
    monkeypatch.setattr(own_python, "starter_file", lambda: tmp_path / "starter.py")
    found = {path.name for path in own_python._modules() if path.parent == package}
    assert found == {"__init__.py", "name.py", "other.py"}
