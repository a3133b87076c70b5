"""Random generators begin as they are told, before the program draws from them or seeds them."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from prismdbg.jobs.injection import PACKAGE
from prismdbg.rank.recording.inputs import seeds
from prismdbg.settings import seeds as seed_settings


def test_what_is_read_is_what_is_put_back() -> None:
    one, other = random.Random(), random.Random()
    seeds._put_back_random(other, seeds._read_random(one))
    assert [one.random() for _ in range(700)] == [other.random() for _ in range(700)]
    left, right = numpy.random.RandomState(), numpy.random.RandomState()
    seeds._put_back_numpy(right, seeds._read_numpy(left))
    assert left.standard_normal(700).tolist() == right.standard_normal(700).tolist()


def test_made_of_a_number_they_are_the_same_each_time_and_another_for_each() -> None:
    assert seed_settings.of_number(3) == seed_settings.of_number(3) != seed_settings.of_number(4)
    assert set(seed_settings.of_number(3)) == {*seed_settings.MODULES, seed_settings.UNSEEDED}


DRAWS = (
    "import random; a = random.random(); import numpy; print(a, numpy.random.rand(), 'PRISMDBG_SEEDS' in os.environ)"
)
SEEDS_ITSELF = (
    "import random; random.seed(5); import numpy; numpy.random.seed(5); print(random.random(), numpy.random.rand())"
)


@pytest.fixture
def started(tmp_path: Path) -> object:
    """Runs a program as a replay starts it, up to the import of torch, with these seeds."""
    (tmp_path / "inject").mkdir()
    (tmp_path / "inject" / "sitecustomize.py").write_text(
        (PACKAGE / "rank" / "inject" / "sitecustomize.py").read_text()
    )
    (tmp_path / "inject" / "prismdbg").symlink_to(PACKAGE)

    def run(program: str, wanted: dict[str, seeds.Seed] | None) -> str:
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"seeds": wanted or {}}))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "inject"), "PRISMDBG_CONFIG": str(config)}
        if wanted is not None:
            environment[seeds.WANTED] = "1"
        command = [sys.executable, "-c", f"import os; {program}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        return done.stdout

    return run


def test_a_program_draws_what_it_drew(started: object) -> None:
    assert callable(started)
    first, again = started(DRAWS, seed_settings.of_number(1)), started(DRAWS, seed_settings.of_number(1))
    assert first == again != started(DRAWS, seed_settings.of_number(2))
    assert first.endswith("False\n"), "what the program starts would begin as it did"
    assert started(DRAWS, None) != started(DRAWS, None)


def test_the_programs_own_seeds_come_later(started: object) -> None:
    assert callable(started)
    random.seed(5)
    expected = f"{random.random()} {numpy.random.RandomState(5).rand()}\n"
    assert started(SEEDS_ITSELF, seed_settings.of_number(1)) == expected == started(SEEDS_ITSELF, None)


def test_a_forked_child_is_seeded_anew_and_its_program_began_as_its_parents() -> None:
    """Python seeds `random` in it; a replay begins where the program did."""
    program = (
        "import os, random\n"
        "from prismdbg.rank.recording.inputs import seeds\n"
        "seeds.prepare()\n"
        "before = seeds.began()['random']\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "    print(before == seeds.began()['random'], flush=True)\n"
        "else:\n"
        "    now = seeds.began()['random']\n"
        "    print(now == before, now == list(random.getstate()[1]), flush=True)\n"
    )
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, cwd=PACKAGE.parent, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["True False", "True"]


MAKES = """
import random
own, same = random.Random(), random.Random()
def made():
    return random.Random().random()
import numpy
drawn = [own.random(), same.random(), made(), made(), numpy.random.default_rng().random()]
random.seed(); numpy.random.seed()
drawn += [random.random(), numpy.random.rand(), numpy.random.RandomState().rand(), random.Random(7).random()]
for _ in range(2):
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, f"{random.random()} {made()} {numpy.random.default_rng().random()}".encode())
        os._exit(0)
    os.wait()
    drawn += map(float, os.read(reader, 1000).split())
print(*drawn)
"""


def test_generators_that_the_program_makes_without_a_seed_begin_as_they_did(started: object) -> None:
    """In forked processes, too. What has a seed keeps it."""
    assert callable(started)
    first, again, other = (started(MAKES, seed_settings.of_number(number)).split() for number in (1, 1, 2))
    assert first == again and len(set(first)) == len(first) == 15
    seeded = str(random.Random(7).random())
    assert [a for a, b in zip(first, other, strict=True) if a == b] == [seeded]
    assert started(MAKES, None) != started(MAKES, None)


NAMES = """
import pickle, uuid
def made():
    return uuid.uuid4()
named = [made(), made(), uuid.uuid4()]
reader, writer = os.pipe()
if not os.fork():
    os.write(writer, made().bytes)
    os._exit(0)
os.wait()
named += uuid.UUID(bytes=os.read(reader, 16)), made()
assert all((name.version, name.variant) == (4, uuid.RFC_4122) for name in named)
assert pickle.loads(pickle.dumps(uuid.uuid4)) is uuid.uuid4 and uuid.uuid4.__name__ == "uuid4"
import sys
print(*named, "random" in sys.modules)
"""


def test_names_that_the_program_draws_are_those_that_it_drew(started: object) -> None:
    assert callable(started)
    first, again, other = (started(NAMES, seed_settings.of_number(number)).split() for number in (1, 1, 2))
    assert first == again and len({*first, *other}) == 2 * 5 + 1
    assert first[-1] == "False", "an import that the program does not do"
    assert started(NAMES, None) != started(NAMES, None)


def test_a_name_that_no_line_of_python_asks_for_is_one_all_the_same(started: object) -> None:
    assert callable(started)
    program = (
        "import atexit, uuid\natexit.register(uuid.uuid4)\n"
        "try: uuid.uuid4(1)\nexcept TypeError as error: print(error, flush=True)"
    )
    refused = "uuid4() takes 0 positional arguments but 1 was given\n"
    assert started(program, seed_settings.of_number(1)) == refused


def test_what_may_make_keys_is_the_operating_systems(started: object) -> None:
    assert callable(started)
    for drawn in ("os.urandom(8)", "secrets.token_hex()", "random.SystemRandom().random()", "uuid.uuid1()"):
        program = f"import random, secrets, uuid; print({drawn})"
        assert started(program, seed_settings.of_number(1)) != started(program, seed_settings.of_number(1))


def test_clocks_of_datetime_are_seen_once_it_is_imported(started: object) -> None:
    assert callable(started)
    program = (
        "import sys\nassert 'datetime' not in sys.modules and 'uuid' not in sys.modules\n"
        "from datetime import datetime\n"
        "from prismdbg.rank.program import dates\nprint(dates.are_watched(), type(datetime.now))"
    )
    assert started(program, None) == "True <class 'prismdbg.rank.program.dates.Now'>\n"


def test_a_package_that_writes_into_their_memory_finds_python_s_own(started: object, tmp_path: Path) -> None:
    assert callable(started)
    (tmp_path / "time_machine.py").write_text("import datetime")
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import time_machine, time; print(time.time, end=' ')\n"
    program += "import datetime; print(type(datetime.datetime.now), type(datetime.datetime.utcnow))"
    builtin = "<class 'builtin_function_or_method'>"
    assert started(program, None) == f"<built-in function time> {builtin} {builtin}\n"


DRAWN_IN_A_CHILD = """
import random, sys, tempfile
random.random(), tempfile.mktemp()
def become_the_child():
    if not {forks}:
        print(random.random(), random.Random().random(), tempfile.mktemp(), flush=True)
        os._exit(0)
    os.wait()
become_the_child()
"""


def test_what_goes_on_as_a_forked_child_draws_what_that_does(started: object) -> None:
    assert callable(started)
    in_child = started(DRAWN_IN_A_CHILD.replace("{forks}", "os.fork()"), seed_settings.of_number(1))
    as_child = "__import__('prismdbg.rank.recording.inputs.seeds').rank.recording.inputs.seeds.as_forked()"
    assert started(DRAWN_IN_A_CHILD.replace("{forks}", as_child), seed_settings.of_number(1)) == in_child
    assert started(DRAWN_IN_A_CHILD.replace("{forks}", "0"), seed_settings.of_number(1)) != in_child


def test_wherever_prismdbg_lies(started: object, tmp_path: Path) -> None:
    """In a replay, it is elsewhere."""
    assert callable(started)
    program = "import random\nif not os.fork(): print(random.random(), random.Random().random())\nelse: os.wait()"
    here = started(program, seed_settings.of_number(1))
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(PACKAGE, other / "prismdbg", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    config = other / "config.json"
    config.write_text(json.dumps({"seeds": seed_settings.of_number(1)}))
    shutil.copy(PACKAGE / "rank" / "inject" / "sitecustomize.py", other)
    env = {**os.environ, "PYTHONPATH": str(other), "PRISMDBG_CONFIG": str(config), seed_settings.WANTED: "1"}
    line = [sys.executable, "-c", f"import os; {program}"]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == here


def test_threads_get_numbers_of_their_own(started: object) -> None:
    assert callable(started)
    program = (
        "import random, sys, threading\nsys.setswitchinterval(1e-6)\ndrawn = []\n"
        "def draw():\n    for _ in range(500): drawn.append(random.Random().random())\n"
        "threads = [threading.Thread(target=draw) for _ in range(8)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\nprint(len(set(drawn)))"
    )
    assert started(program, seed_settings.of_number(1)) == "4000\n"


def test_a_program_that_replaces_or_removes_random_goes_on(started: object) -> None:
    assert callable(started)
    program = (
        "import random, sys\nbefore = random.Random\n"
        "class Own(before):\n    def __init__(self): super().__init__()\n"
        "random.Random = Own\nrandom.Random()\ndel sys.modules['random']\nprint(before().random() < 1)"
    )
    assert started(program, seed_settings.of_number(1)) == "True\n"


def test_they_do_not_depend_on_what_other_functions_ask_for(started: object) -> None:
    assert callable(started)
    wanted = seed_settings.of_number(1)
    functions = "def other(): return random.Random()\ndef mine(): return random.Random().random()"
    asks = f"import random\n{functions}\n{{}}print(mine())"
    assert started(asks.format(""), wanted) == started(asks.format("other()\n"), wanted)
    assert started(asks.format(""), wanted) != started(asks.format("mine()\n"), wanted)
