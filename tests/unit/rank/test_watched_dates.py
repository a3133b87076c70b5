"""`datetime.now` and `utcnow` as a program finds them where it is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[3]
BEFORE = """
    import copy, datetime, inspect, pickle, pydoc, random, time, warnings
    from dataclasses import dataclass, field
    from datetime import date, datetime as when, timedelta, timezone
    {early}
    from prismdbg.rank.program import clocks, dates
    clocks.watch()
    dates.watch(datetime)

    NS = 1_700_000_000_123_456_789
    class Seen:
        def __init__(self):
            self.sites = []
        def read(self, clock, site):
            self.sites.append((clock.__name__, site))
            return NS if clock.__name__.endswith("_ns") else NS / 1e9
        def read_beside(self, clock, site):
            return self.read(clock, site)
        def left(self):
            pass

    seen = Seen()
    clocks.observe(seen)
"""
BESIDE = Path(sys.base_prefix).parent  # where pyenv has its other versions
EACH_PYTHON = [sys.executable, *(str(path) for path in sorted(BESIDE.glob("3.1[1-3].*/bin/python")))]


def run(program: str, tmp_path: Path, *, early: str = "", python: str = sys.executable) -> list[str]:
    """The lines that the program prints, in a process of its own. early: what it does before the class is changed."""
    path = tmp_path / "train.py"
    path.write_text(dedent(BEFORE).format(early=early) + dedent(program))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "Europe/Berlin"}
    done = subprocess.run([python, path], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(params=EACH_PYTHON)
def python(request: pytest.FixtureRequest) -> str:
    """Those that this machine has."""
    return str(request.param)


def test_they_give_the_time_that_the_observer_says(tmp_path: Path, python: str) -> None:
    program = """
        warnings.simplefilter("ignore")
        def step():
            return when.now(), when.now(timezone.utc), when.now(tz=timezone.utc), when.now(None), when.utcnow()
        print(*step(), sep="\\n")
        print(*(f"{clock} {site} {site.lines[0][1]}" for clock, site in seen.sites), sep="\\n")
    """
    *times, first, second, third, fourth, fifth = run(program, tmp_path, python=python)
    utc, berlin = "2023-11-14 22:13:20.123456", "2023-11-14 23:13:20.123456"
    assert times == [berlin, f"{utc}+00:00", f"{utc}+00:00", berlin, utc]
    line = first.split()[1]
    assert {first, second, third, fourth, fifth} == {f"time_ns {line} step"}


def test_today_reads_a_clock_of_time(tmp_path: Path, python: str) -> None:
    program = """
        def step():
            return when.today(), date.today(), datetime.date.today()
        print(*step())
        print({(clock, site.lines[0][1]) for clock, site in seen.sites}, len(seen.sites))
    """
    assert run(program, tmp_path, python=python) == [
        "2023-11-14 23:13:20.123457 2023-11-14 2023-11-14",
        "{('time', 'step')} 3",
    ]


def test_each_microsecond_is_the_right_one(tmp_path: Path, python: str) -> None:
    """Until 2106. Also in the hour that a clock shows twice."""
    program = """
        warnings.simplefilter("ignore")
        autumn = 1_698_541_200 * 10**9  # the clocks of Berlin go back at that moment
        tried = [random.Random(1).randrange(4_200_000_000 * 10**9) for _ in range(2000)]
        tried += [autumn + hour * 1800 * 10**9 + us * 1000 + ns
                  for hour in range(-4, 4) for us in (0, 1, 999_999) for ns in (0, 999)]
        folds = 0
        for NS in tried:
            seconds, us = divmod(NS // 1000, 10**6)
            for found, zone in ((when.now(), None), (when.now(timezone.utc), timezone.utc)):
                expected = when.fromtimestamp(seconds, zone).replace(microsecond=us)
                assert (found, found.fold) == (expected, expected.fold), (NS, found, expected)
                folds += found.fold
            assert when.utcnow() == when.fromtimestamp(seconds, timezone.utc).replace(tzinfo=None, microsecond=us)
        print(folds)
    """
    (folds,) = run(program, tmp_path, python=python)
    assert int(folds) >= 12


def test_subclasses_get_their_own(tmp_path: Path, python: str) -> None:
    program = """
        warnings.simplefilter("ignore")
        class Stamp(when):
            made = []
            def __new__(cls, *args, **named):
                cls.made.append((len(args), named))
                return super().__new__(cls, *args, **named)
            @classmethod
            def now(cls, tz=None):
                return super().now(tz)
        class Zone(when):
            def fromtimestamp(self):
                raise AssertionError
        print(type(Stamp.now()), type(Stamp.now(timezone.utc)), type(Stamp.utcnow()), type(Zone.now()), Zone.now())
        print(Stamp.made[0], Stamp.now.__self__, when(1, 1, 1).now(), Zone(1, 1, 1).utcnow(), len(seen.sites))
        made = [*Stamp.made]
        Stamp.made.clear()
        dates.leave()
        Stamp.now(), Stamp.now(timezone.utc), Stamp.utcnow()
        assert made == Stamp.made, (made, Stamp.made)
    """
    zone, stamp = "<class '__main__.Zone'>", "<class '__main__.Stamp'>"
    assert run(program, tmp_path, python=python) == [
        f"{stamp} {stamp} {stamp} {zone} 2023-11-14 23:13:20.123456",
        f"(8, {{}}) {stamp} 2023-11-14 23:13:20.123456 2023-11-14 22:13:20.123456 7",
    ]


def test_wrong_arguments_are_refused_as_python_does(tmp_path: Path, python: str) -> None:
    program = """
        def errors():
            for call in (lambda: when.now(1, 2), lambda: when.now(1), lambda: when.now(zone=None),
                         lambda: when.now(None, tz=None), lambda: when.utcnow(1), lambda: when.utcnow(tz=None)):
                try:
                    call()
                except TypeError as error:
                    yield str(error)
        found = list(errors())
        clocks.observe(None)
        assert list(errors()) == found
        dates.leave()
        assert type(when.now).__name__ == "builtin_function_or_method"
        print(list(errors()) == found, len(found))
    """
    assert run(program, tmp_path, python=python) == ["True 6"]


def test_they_can_be_kept_named_and_pickled_as_python_s_own(tmp_path: Path, python: str) -> None:
    program = """
        now = when.now
        class Timer:
            clock = when.now
        @dataclass
        class Run:
            began: when = field(default_factory=when.now)
        print(now() == Timer().clock() == Run().began == when.now(), len(seen.sites))
        again = pickle.loads(pickle.dumps(now)), copy.deepcopy(now), copy.copy(when.utcnow)
        print(again == (when.now, when.now, when.utcnow), hash(again[0]) == hash(now), now != when.utcnow, now != 1)
        print(pickle.loads(pickle.dumps(when)) is when, when is datetime.datetime)
        print(callable(now), inspect.signature(now), now.__name__, now.__qualname__, now.__module__, now.__self__)
        print(repr(now)[:31], now.__doc__ == early.__doc__, early == now._own)
        print(sum(name in pydoc.render_doc(when, renderer=pydoc.plaintext) for name in ("now", "utcnow", "today")))
        print(isinstance(vars(when)["now"], classmethod), "now" in dir(when))
    """
    assert run(program, tmp_path, early="early = when.now", python=python) == [
        "True 4",
        "True True True True",
        "True True",
        "True (tz=None) now datetime.now None <class 'datetime.datetime'>",
        "<built-in method now of type ob True True",
        "3",
        "True True",
    ]


def test_a_replay_gives_exactly_what_was_recorded(tmp_path: Path, python: str) -> None:
    program = """
        import json, os
        from pathlib import Path
        from prismdbg.rank.recording.inputs.clock_reads import READS
        from prismdbg.rank.replay import recorded_clocks
        warnings.simplefilter("ignore")
        kept = Path(__file__).with_name("kept.json")
        is_replay = kept.exists()
        if is_replay:
            recorded_clocks.begin(json.loads(kept.read_text()), ())
        else:
            clocks.observe(READS)
        def step():
            return when.now(), when.now(timezone.utc), when.utcnow(), when.today(), date.today()
        print(*(each for _ in range(9) for each in step()), sep="\\n")
        if is_replay:
            print(recorded_clocks.begun().not_recorded)
        else:
            kept.write_text(json.dumps(READS.begin(lambda record: None)))
    """
    recorded, replayed = (run(program, tmp_path, python=python) for _ in range(2))
    assert len(set(recorded)) > 9 * 4
    assert replayed == [*recorded, "{}"]


def test_a_pickle_of_one_is_read_without_prismdbg(tmp_path: Path) -> None:
    (said,) = run("print(pickle.dumps(when.now).hex())", tmp_path)
    assert b"prismdbg" not in bytes.fromhex(said)


def test_code_that_ran_before_sees_them(tmp_path: Path, python: str) -> None:
    """Python specializes what runs often, and keeps what it found in a class."""
    early = "exec('def name(): return when.now()\\nfor _ in range(5000): name()\\nclass Sub(when): pass\\nSub.now()')"
    program = "print(name(), Sub.now())"
    time = "2023-11-14 23:13:20.123456"
    assert run(program, tmp_path, early=early, python=python) == [f"{time} {time}"]


def test_utcnow_is_outdated_where_it_is_called(tmp_path: Path, python: str) -> None:
    program = """
        def warned(call):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                call()
            return [(str(each.message), each.category, each.filename, each.lineno) for each in found]
        def call():
            when.utcnow()
        seen_one = warned(call)
        clocks.observe(None)
        unseen = warned(call)
        dates.leave()
        print(seen_one == unseen == warned(call), len(unseen))
    """
    warns = subprocess.check_output([python, "-c", "import sys; print(int(sys.version_info >= (3, 12)))"], text=True)
    assert run(program, tmp_path, python=python) == [f"True {warns.strip()}"]


def test_without_an_observer_they_are_python_s_own(tmp_path: Path, python: str) -> None:
    program = """
        warnings.simplefilter("ignore")
        clocks.observe(None)
        near = timedelta(seconds=60)
        print(abs(when.now() - real()) < near, abs(when.utcnow() - real_utc()) < near, len(seen.sites))
        print(when.now(timezone.utc) - real(timezone.utc) < near)
    """
    assert run(program, tmp_path, early="real, real_utc = when.now, when.utcnow", python=python) == [
        "True True 0",
        "True",
    ]


def test_they_are_python_s_own_again(tmp_path: Path, python: str) -> None:
    """time_machine writes into the memory of what `datetime.now` is."""
    program = """
        kept = when.now
        dates.leave()
        print(when.now == early, type(when.now) is type(early), dates.are_watched(), kept() == when.now())
        dates.watch(datetime)
        print(type(when.now) is type(early), when.now().year > 2023)
    """
    assert run(program, tmp_path, early="early = when.now", python=python) == [
        "True True False False",
        "True True",
    ]


@pytest.mark.parametrize(
    "change", ["dates.NEWEST = (3, 10)", "dates.sys.abiflags = 't'", "datetime.datetime = type('Fake', (when,), {})"]
)
def test_what_is_not_known_stays_as_it_is(change: str, tmp_path: Path) -> None:
    program = f"""
        dates.leave(); dates._is_left = False
        {change}
        dates.watch(datetime)
        print(type(when.now) is type(early), dates.are_watched(), sorted(dates._names))
    """
    assert run(program, tmp_path, early="early = when.now") == ["True False []"]


def test_what_other_modules_of_python_read_is_their_own(tmp_path: Path) -> None:
    program = """
        names = {"when": when, "__name__": "email.utils"}
        exec(compile("now = when.now()", inspect.getfile(inspect), "exec"), names)
        print(names["now"].year > 2023, len(seen.sites))
    """
    assert run(program, tmp_path) == ["True 0"]


def test_an_interpreter_that_ends_has_them(tmp_path: Path, python: str) -> None:
    program = """
        import os, sys
        warnings.simplefilter("ignore")
        class Sub(when):
            pass
        class Late:
            def __del__(self, now=when.now, kind=when, sub=Sub, write=os.write):
                write(1, f"late {now() <= kind.now() <= sub.now()} {sub.utcnow().year > 2000}\\n".encode())
        sys.late = Late()
        late = Late()
    """
    assert run(program, tmp_path, python=python) == ["late True True"] * 2


def test_pandas_has_the_time_that_the_observer_says(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    program = """
        from pandas import Timestamp as Stamp
        def step():
            return Stamp.now(), Stamp.now("UTC"), Stamp("now"), Stamp.today()
        print(*step(), sep="\\n")
        print("step" in {site.lines[0][1] for _, site in seen.sites})
    """
    utc, berlin = "2023-11-14 22:13:20.123456", "2023-11-14 23:13:20.123456"
    assert run(program, tmp_path) == [berlin, f"{utc}+00:00", berlin, berlin, "True"]


def test_a_compiled_function_is_compiled_around_it(tmp_path: Path) -> None:
    program = """
        import torch
        graphs = []
        def backend(module, _):
            graphs.append(module)
            return module.forward
        @torch.compile(backend=backend)
        def step(x):
            doubled = x + x
            now, utc = when.now(), when.utcnow()
            return doubled * x, now, utc
        print(step(torch.ones(2))[1].year, len(graphs))
    """
    assert run(program, tmp_path, early="warnings.simplefilter('ignore')") == ["2023 2"]
