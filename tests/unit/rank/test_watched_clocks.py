"""The clocks of `time` as a program finds them where it is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[3]
BEFORE = """
    import time
    real = time.time, time.perf_counter, time.strftime
    from prismdbg.rank.program import clocks
    clocks.watch()

    class Seen:
        def __init__(self):
            self.sites = []
        def read(self, clock, site):
            self.sites.append((clock.__name__, site))
            return 7 if clock.__name__.endswith("_ns") else 7.5

        def read_beside(self, clock, site):
            return clock.now()
        def left(self):
            self.sites.append("left")

    seen = Seen()
    clocks.observe(seen)
"""


def run(program: str, tmp_path: Path, *, name: str = "train.py") -> list[str]:
    """The lines that the program prints, in a process of its own: it changes what `time` is."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(BEFORE) + dedent(program))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_program_is_given_what_the_observer_says(tmp_path: Path) -> None:
    program = """
        from time import monotonic_ns as now
        def step():
            told = time.time(), time.perf_counter(), now(), time.localtime()[5], time.strftime("%S")
            return *told, time.ctime(0)[-4:], time.ctime(None)[-4:]
        print(*step())
        for clock, site in seen.sites:
            (path, function, _), (_, caller, _) = site.lines
            print(clock, path.rpartition("/")[2], function, caller)
    """
    first, *sites = run(program, tmp_path)
    assert first.split() == ["7.5", "7.5", "7", "7", "07", "1970", "1970"]
    assert sites == [
        f"{clock} train.py step <module>" for clock in ("time", "perf_counter", "monotonic_ns", "time", "time", "time")
    ]


def test_a_class_may_keep_a_clock(tmp_path: Path) -> None:
    """A function of Python's would be a method there, and get the object as an argument."""
    program = """
        import copy, pickle
        class Timer:
            clock = time.perf_counter
        again = pickle.loads(pickle.dumps(time.time))
        print(Timer().clock(), again is time.time, copy.deepcopy(time.time) is time.time)
        print(time.time.__module__, time.time.__name__, callable(time.time))
    """
    assert run(program, tmp_path) == ["7.5 True True", "time time True"]


def test_reads_of_others_are_their_own(tmp_path: Path) -> None:
    program = """
        import threading, selectors
        other = []
        thread = threading.Thread(target=lambda: other.append(time.time()))
        thread.start(); thread.join()
        import logging
        record = logging.makeLogRecord({})
        print(other[0] > 8, record.created > 8, seen.sites == [])
    """
    assert run(program, tmp_path) == ["True True True"]


@pytest.mark.parametrize(("folder", "is_seen"), [("megatron", True), ("torch", False)])
def test_packages_are_seen_and_torch_is_not(folder: str, is_seen: bool, tmp_path: Path) -> None:
    program = "print(time.time() == 7.5)"
    assert run(program, tmp_path, name=f"site-packages/{folder}/timers.py") == [str(is_seen)]


def test_a_folder_can_be_left_out(tmp_path: Path) -> None:
    program = """
        print(time.time() == 7.5)
        clocks.leave_out(__file__.rpartition("/")[0])
        print(time.time() == 7.5)
    """
    assert run(program, tmp_path, name="src/torch/timers.py") == ["True", "False"]


def test_what_a_handler_raises_meanwhile_is_for_the_program(tmp_path: Path) -> None:
    program = """
        import signal
        def late(*_):
            raise TimeoutError
        signal.signal(signal.SIGALRM, late)
        seen.read = lambda clock, site: signal.raise_signal(signal.SIGALRM)
        try:
            time.time()
        except TimeoutError:
            print("late")
        seen.read = lambda clock, site: 7.5
        print(time.time())
    """
    assert run(program, tmp_path) == ["late", "7.5"]


def test_what_another_thread_raises_here_is_for_the_program(tmp_path: Path) -> None:
    """As libraries do it that end a function after a time; most often it comes while the clock is asked."""
    program = """
        class Late(Exception):
            pass
        def read(clock, site):
            clocks.raised()
        def raised():
            raise Late
        clocks.raised = type(raised)(raised.__code__.replace(co_filename=clocks.__file__), globals())
        seen.read = read
        try:
            time.time()
        except Late:
            print("late")
    """
    assert run(program, tmp_path) == ["late"]


def test_functions_of_one_module_are_told_apart(tmp_path: Path) -> None:
    """They are called from one line, and ask in the same way."""
    program = """
        def on_start():
            return time.time()
        def on_end():
            return time.time()
        for called in (on_start, on_end):
            called()
        print([site.lines[0][1] for _, site in seen.sites])
    """
    assert run(program, tmp_path) == ["['on_start', 'on_end']"]


def test_frames_of_prismdbg_between_the_programs_do_not_count(tmp_path: Path) -> None:
    """A recording has some that a replay has not."""
    program = """
        names = {"__name__": "prismdbg.rank.recording.backward_pass"}
        exec("def followed(f):\\n    return f()", names)
        def hook():
            return time.time()
        def backward(follow):
            return follow(hook)
        backward(names["followed"]); backward(lambda f: f())
        first, second = (site.lines for _, site in seen.sites)
        print([function for _, function, _ in first], [function for _, function, _ in second])
    """
    said = "['hook', 'backward', '<module>'] ['hook', '<lambda>', 'backward', '<module>']"
    assert run(program, tmp_path) == [said]


@pytest.mark.parametrize("number", [2, 11, 13, 28])
def test_a_log_that_cannot_be_written_is_no_matter_of_the_program(number: int, tmp_path: Path) -> None:
    program = f"""
        def read(clock, site):
            clocks.raised()
        def raised():
            raise OSError({number}, "")
        clocks.raised = type(raised)(raised.__code__.replace(co_filename=clocks.__file__), globals())
        seen.read = read
        print(time.time() > 8, seen.sites)
    """
    assert run(program, tmp_path) == ["True ['left']"]


def test_names_that_a_program_drops_are_dropped(tmp_path: Path) -> None:
    program = """
        import gc, weakref
        class Held:
            pass
        def trial():
            names = {"held": Held(), "time": time}
            exec("now = time.time()", names)
            return weakref.ref(names["held"])
        gone = trial()
        gc.collect()
        print(gone() is None, len(seen.sites))
    """
    assert run(program, tmp_path) == ["True 1"]


def test_a_module_that_a_program_drops_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(
        "import time\ndef now():\n    return time.time()\nclass Held: pass\nheld = Held()\n"
    )
    program = """
        import gc, sys, weakref
        def trial():
            import plugin
            plugin.now(); plugin.now()
            del sys.modules["plugin"]
            return weakref.ref(plugin.held), weakref.ref(plugin)
        for _ in range(2):
            known = len(clocks._sites)
            held, module = trial()
            gc.collect()
            print(held() is None, module() is None, len(clocks._sites) - known)
    """
    assert run(program, tmp_path) == ["True True 0"] * 2


ENDS = """
    import os, time
    class Cache:
        def __init__(self):
            os.mkdir("cache")
        def __del__(self):
            os.rmdir("cache")
            print("removed", flush=True)
    cache = Cache()
    began = time.time()
    def main():
        return time.time()
    main()
"""


@pytest.mark.parametrize("started", ["script", "module", "spawned"])
def test_what_a_program_holds_is_freed_while_others_are_still_there(started: str, tmp_path: Path) -> None:
    """Names of the program that anything of ours holds are freed after those of all modules: too late for a function
    that uses one."""
    hooks = (ROOT / "prismdbg" / "rank" / "inject" / "sitecustomize.py").read_text()
    (tmp_path / "inject").mkdir()
    (tmp_path / "inject" / "sitecustomize.py").write_text(hooks)
    (tmp_path / "config").write_text("{}")
    program = dedent(ENDS)
    if started == "spawned":
        program = dedent("""
            import multiprocessing
            def child():
                global cache
                cache = Cache()
                time.time()
            if __name__ == "__main__":
                process = multiprocessing.get_context("spawn").Process(target=child)
                process.start(); process.join()
        """) + program.replace("cache = Cache()", "")
    (tmp_path / "train.py").write_text(program)
    environment = os.environ | {
        "PRISMDBG_CONFIG": str(tmp_path / "config"), "PYTHONPATH": f"{tmp_path / 'inject'}:{ROOT}"
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *(["-m", "train"] if started == "module" else ["train.py"])],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "removed\n", "")
    assert not (tmp_path / "cache").exists()


def test_an_observer_that_fails_is_left_alone(tmp_path: Path) -> None:
    program = """
        seen.read = lambda clock, site: clocks._named(None, "", None)  # raises in prismdbg
        print(time.time() > 8)
        seen.read = lambda clock, site: 1.0
        print(time.time() > 8, seen.sites)
    """
    assert run(program, tmp_path) == ["True", "True ['left']"]


def test_what_an_observer_reads_is_not_seen(tmp_path: Path) -> None:
    program = """
        seen.read = lambda clock, site: time.time()
        print(time.time() > 8)
    """
    assert run(program, tmp_path) == ["True"]


def test_who_calls_one_without_a_line_of_python_is_not_seen(tmp_path: Path) -> None:
    program = """
        import atexit
        atexit.register(time.time)
        print(time.time())
    """
    assert run(program, tmp_path) == ["7.5"]


def test_they_are_python_s_own_again(tmp_path: Path) -> None:
    """time_machine writes into the memory of these functions."""
    program = """
        clocks.leave()
        assert seen.sites == ["left"]
        print(time.time is real[0], time.perf_counter is real[1], time.strftime is real[2], time.time() > 8)
        clocks.observe(seen)
        print(clocks._observer, seen.sites)
    """
    assert run(program, tmp_path) == ["True True True True", "None ['left', 'left']"]


def test_nobody_sees_anything_afterwards(tmp_path: Path) -> None:
    program = """
        clocks.observe(None)
        print(time.time() > 8, abs(time.time() - real[0]()) < 60, time.strftime("%Y") == real[2]("%Y"), len(seen.sites))
    """
    assert run(program, tmp_path) == ["True True True 0"]


def test_a_function_has_one_number_in_each_process(tmp_path: Path) -> None:
    program = """
        def step():
            time.time()
        step()
        print(seen.sites[0][1].function, seen.sites[0][1].place)
    """
    assert run(program, tmp_path) == run(program, tmp_path)
