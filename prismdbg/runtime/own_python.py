"""prismdbg's own interpreter for a container whose files are those that a capsule lists.

It is copied once into the cache, with its loader and libraries, and only the modules that the starter imports.

The first process of a container has capabilities where the checkpoint engine needs them. So nothing that a capsule
names may run as it.
"""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import FacilityError
from prismdbg.runtime.elf import needed_libraries
from prismdbg.runtime.environment_scan import library_path
from prismdbg.runtime.starter_spec import starter_file

_BOUND_S = 60.0
_FORMAT = 2
# Imports what the starter imports, and says where it came from. The starter's own files lie elsewhere. A module may put
# another one in its place, as collections.abc does from Python 3.13 on: its own file is found by its name.
_LIST = """
import json, sys
from _frozen_importlib_external import PathFinder
sys.path.append(sys.argv[1])
import starter
for name in ("ascii", "idna", "latin_1", "unicode_escape", "utf_8"):
    "".encode(name)
files = set()
for name, module in list(sys.modules.items()):
    files.add(getattr(module, "__file__", None))
    package = sys.modules.get(name.rpartition(".")[0])
    if hasattr(package, "__path__"):
        spec = PathFinder.find_spec(name, package.__path__)
        files.add(spec.origin if spec and spec.has_location else None)
print(json.dumps(sorted(files - {None})))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPython:
    """`command`: how it is started where `folder` lies at the same path. `nothing`: an empty file."""

    folder: Path
    command: tuple[str, ...]

    @property
    def nothing(self) -> Path:
        return self.folder / "nothing"


def own_python(cache: Path) -> OwnPython:
    """Made when it is not there yet, in a second. `FacilityError` where it cannot be."""
    folder = cache / "starter-python" / _key()
    if not (folder / "bundle.json").is_file():
        _make(folder)
    facts = json.loads((folder / "bundle.json").read_text())
    command = (str(folder / facts["loader"]), "--inhibit-cache", "--library-path", str(folder / "libraries"))
    return OwnPython(folder=folder, command=(*command, str(folder / facts["program"])))


def _key() -> str:
    """Changes with the interpreter, and with what the starter may import."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.version} {_program()}".encode())
    digest.update(str(_program().stat().st_mtime_ns).encode())
    for path in sorted(starter_file().parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _program() -> Path:
    return Path(sys.executable).resolve()


def _make(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
    try:
        _fill(made)
        made.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:  # another one was quicker
            if not (folder / "bundle.json").is_file():
                raise
    except (OSError, ValueError, subprocess.SubprocessError, py_compile.PyCompileError) as error:
        raise FacilityError(
            f"the Python interpreter for the container could not be prepared: {error}",
            hint="use --runtime local, which needs no copy of the interpreter",
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fill(made: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = made / "lib" / version
    compiled: list[Path] = [_copied(_program(), made / "bin" / version)]
    (library / "lib-dynload").mkdir(parents=True)
    for module in _modules():
        if module.suffix == ".so":
            compiled.append(_copied(module, library / "lib-dynload" / module.name))
        else:
            _compiled(module, library)
    (made / "nothing").touch()
    loader = _copy_libraries(compiled, made / "libraries")
    facts = {"loader": f"libraries/{loader}", "program": f"bin/{version}"}
    (made / "bundle.json").write_text(json.dumps(facts))


def _modules() -> list[Path]:
    command = [sys.executable, "-I", "-S", "-B", "-c", _LIST, str(starter_file().parent)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BOUND_S, check=True)
    found = [Path(path) for path in json.loads(ran.stdout)]
    return [path for path in found if path.parent != starter_file().parent]


def _compiled(module: Path, library: Path) -> None:
    """With byte code that is taken unchecked, for the copy has another time."""
    target = library / module.relative_to(str(Path(os.__file__).parent))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(module, target)
    py_compile.compile(str(target), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _copy_libraries(of: list[Path], into: Path) -> str:
    """Theirs in turn; the name of the loader."""
    into.mkdir()
    loader, seen, waiting = "", set[str](), list(of)
    while waiting:
        for name in needed_libraries(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            path = _library(name)
            waiting.append(_copied(path, into / Path(name).name))
            loader = Path(name).name if name.startswith("/") else loader
    if not loader:
        raise ValueError(f"{_program()} has no dynamic loader")
    return loader


def _library(name: str) -> Path:
    if name.startswith("/"):
        return Path(name).resolve()
    beside = [Path(sys.base_prefix, "lib", name), _program().parent.parent / "lib" / name]
    for path in beside:
        if path.is_file():
            return path.resolve()
    known = library_path(name)
    if known is None:
        raise ValueError(f"the library {name} is not found")
    return Path(known).resolve()


def _copied(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)
    return target
