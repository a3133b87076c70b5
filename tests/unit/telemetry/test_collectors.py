"""Sensors of a host, from trees that stand for its files."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from telemetry_sink import Collected

from prismdbg.telemetry import open_files
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.collectors.control_groups import ControlGroups
from prismdbg.telemetry.collectors.cpus import CpuCollector, PressureCollector
from prismdbg.telemetry.collectors.hardware import HardwareCollector
from prismdbg.telemetry.collectors.hwmon import POWER, TEMPERATURE, chips
from prismdbg.telemetry.collectors.infiniband import InfinibandCollector
from prismdbg.telemetry.collectors.network import NetworkCollector
from prismdbg.telemetry.collectors.processes import ProcessCollector
from prismdbg.telemetry.collectors.ranks import RankCollector

PID = 4711
EVERY_NS = 1_000_000_000
STAT = "4711 (a (b) c) {state} 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0 99 " + "0 " * 16 + "3 0 0"


def write(root: Path, **files: str) -> None:
    """Names with `__` for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def rank_tree(root: Path, state: str = "S") -> None:
    process = root / "proc" / str(PID)
    for thread, counted in ((PID, "5000 700 3"), (PID + 1, "40 8 1")):
        (process / "task" / str(thread)).mkdir(parents=True)
        (process / "task" / str(thread) / "schedstat").write_text(f"{counted}\n")
    (process / "stat").write_text(STAT.format(state=state))
    (process / "schedstat").write_text("5000 700 3\n")
    (process / "cgroup").write_text("0::/job/rank\n")
    (root / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)


def collector(root: Path) -> RankCollector:
    ranks = RankCollector(root, EVERY_NS)
    ranks.watch("3.1", PID)
    return ranks


def test_a_ranks_times_are_read(tmp_path: Path) -> None:
    rank_tree(tmp_path, state="D")
    found = Collected()
    ranks = collector(tmp_path)
    ranks.sample(found)
    ranks.close()
    assert found.last("rank 3.1", names.CPU_TIME) == 5000
    assert found.last("rank 3.1", names.RUN_QUEUE_WAIT) == 700
    assert found.last("rank 3.1", names.THREADS_CPU_TIME) == 5040
    assert found.last("rank 3.1", names.THREADS_RUN_QUEUE_WAIT) == 708
    assert found.last("rank 3.1", names.LAST_CPU) == 3
    assert found.last("rank 3.1", names.DISK_SLEEP) == 1


def test_a_thread_that_ended_still_counts(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    thread = tmp_path / "proc" / str(PID) / "task" / str(PID + 1)
    (thread / "schedstat").unlink()
    thread.rmdir()
    ranks.sample(found)
    ranks.close()
    assert found.last("rank 3.1", names.THREADS_CPU_TIME) == 5040


def test_of_threads_that_come_and_go_the_times_are_added_up_and_nothing_else_is_kept(tmp_path: Path) -> None:
    """As where a program starts one for each step. Their numbers come again."""
    rank_tree(tmp_path)
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    for number in range(1000):
        thread = tmp_path / "proc" / str(PID) / "task" / str(PID + 2 + number % 300)
        write(thread, schedstat="9 2 1\n")
        ranks.sample(found)
        shutil.rmtree(thread)
    ranks.sample(found)
    assert len(ranks._ranks["3.1"].threads) == 2
    ranks.close()
    for name, begun, each in ((names.THREADS_CPU_TIME, 5040, 9), (names.THREADS_RUN_QUEUE_WAIT, 708, 2)):
        values = found.values("rank 3.1", name)
        assert values == sorted(values) and values[-1] == begun + 1000 * each


def test_a_thread_that_a_list_leaves_out_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's does so where the thread before it ends meanwhile."""
    rank_tree(tmp_path)
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _: [str(PID)])
        ranks.sample(found)
    ranks.sample(found)
    ranks.close()
    assert found.values("rank 3.1", names.THREADS_CPU_TIME) == [5040] * 3
    assert found.values("rank 3.1", names.THREADS_RUN_QUEUE_WAIT) == [708] * 3


@pytest.mark.parametrize(("ran", "waited"), [(3, 9), (50, 1), (3, 1)])
def test_the_times_do_not_fall_where_the_number_of_a_thread_comes_again_at_once(
    ran: int, waited: int, tmp_path: Path
) -> None:
    rank_tree(tmp_path)
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    (tmp_path / "proc" / str(PID) / "task" / str(PID + 1) / "schedstat").write_text(f"{ran} {waited} 1\n")
    ranks.sample(found)
    ranks.close()
    assert found.values("rank 3.1", names.THREADS_CPU_TIME) == [5040, 5040 + ran]
    assert found.values("rank 3.1", names.THREADS_RUN_QUEUE_WAIT) == [708, 708 + waited]


def test_without_schedstat_the_times_are_missing(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    (tmp_path / "proc" / str(PID) / "schedstat").unlink()
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    ranks.close()
    assert found.last("rank 3.1", names.CPU_TIME) is None
    assert "No such file" in found.absent["rank 3.1", names.RUN_QUEUE_WAIT]


def test_a_rank_that_ended_is_read_no_more(tmp_path: Path) -> None:
    rank_tree(tmp_path, state="Z")
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    assert not found.readings
    assert ranks.pids == {}


def quota(root: Path) -> tuple[int | None, str]:
    groups = ControlGroups(root)
    groups.find(PID)
    found = groups.throttled_ns(PID)
    groups.close()
    return found


def test_quota_of_the_group_and_of_those_around_it_version_2(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    write(
        tmp_path,
        sys__fs__cgroup__cgroup_controllers="cpu\n",
        sys__fs__cgroup__job__rank__cpu_max="50000 100000\n",
        sys__fs__cgroup__job__rank__cpu_stat="nr_periods 1\nthrottled_usec 7\n",
        sys__fs__cgroup__job__cpu_max="max 100000\n",
        sys__fs__cgroup__job__cpu_stat="throttled_usec 1000000\n",
    )
    rename_dots(tmp_path)
    assert quota(tmp_path) == (7000, "")


def test_quota_version_1(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    (tmp_path / "proc" / str(PID) / "cgroup").write_text("2:cpu,cpuacct:/job\n1:name=systemd:/x\n0::/\n")
    group = tmp_path / "sys/fs/cgroup/cpu,cpuacct/job"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("50000\n")
    (group / "cpu.stat").write_text("nr_periods 3\nnr_throttled 2\nthrottled_time 123\n")
    assert quota(tmp_path) == (123, "")
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    assert quota(tmp_path) == (0, "")


def test_a_quota_that_cannot_be_seen_is_not_zero(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    assert quota(tmp_path) == (None, "no cpu controller of control groups is mounted at /sys/fs/cgroup")
    write(tmp_path, sys__fs__cgroup__cgroup_controllers="cpu\n")
    rename_dots(tmp_path)
    assert quota(tmp_path) == (None, "the control group /job/rank cannot be seen from here")
    (tmp_path / "proc" / str(PID) / "cgroup").write_text("0::/../other\n")
    assert quota(tmp_path)[0] is None


def pressure(root: Path) -> tuple[int | None, str]:
    groups = ControlGroups(root)
    groups.find(PID)
    found = groups.held_up_by_io_ns(PID)
    groups.close()
    return found


def test_io_pressure_is_that_of_its_own_group(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    write(
        tmp_path,
        sys__fs__cgroup__cgroup_controllers="cpu\n",
        sys__fs__cgroup__job__rank__io_pressure=f"some {line.format(9)}full {line.format(7)}",
        sys__fs__cgroup__job__io_pressure=f"some {line.format(90)}full {line.format(70)}",
    )
    rename_dots(tmp_path)
    assert pressure(tmp_path) == (7000, "")
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    ranks.close()
    assert found.last("rank 3.1", names.GROUP_IO_PRESSURE) == 7000


def test_io_pressure_that_is_not_counted_is_not_zero(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    (tmp_path / "proc" / str(PID) / "cgroup").write_text("2:cpu:/job\n")
    (tmp_path / "sys/fs/cgroup/cpu/job").mkdir(parents=True)
    assert pressure(tmp_path) == (None, "control groups of version 1 do not count it")
    (tmp_path / "proc" / str(PID) / "cgroup").write_text("0::/job/rank\n")
    write(tmp_path, sys__fs__cgroup__cgroup_controllers="cpu\n", sys__fs__cgroup__job__rank__cpu_stat="usage_usec 1\n")
    rename_dots(tmp_path)
    value, why = pressure(tmp_path)
    assert value is None and why.endswith("io.pressure: No such file or directory")
    found, ranks = Collected(), collector(tmp_path)
    ranks.sample(found)
    ranks.close()
    assert found.absent["rank 3.1", names.GROUP_IO_PRESSURE] == why


def rename_dots(root: Path) -> None:
    """`cpu_max` was written for `cpu.max`: a keyword has no dot."""
    for path in (root / "sys/fs/cgroup").rglob("*_*"):
        path.rename(path.with_name(path.name.replace("_", ".", 1)))


def test_stolen_time_is_read_for_each_cpu(tmp_path: Path) -> None:
    write(tmp_path, proc__stat="cpu  1 1 1 1 1 1 1 9 0 0\ncpu0 1 1 1 1 1 1 1 4 0 0\ncpu5 1 1 1 1 1 1 1 5 0 0\nintr 1\n")
    found = Collected()
    CpuCollector(tmp_path).sample(found)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert found.last("cpu 0", names.STOLEN_TIME) == 4 * tick_ns
    assert found.last("cpu 5", names.STOLEN_TIME) == 5 * tick_ns
    CpuCollector(tmp_path / "nothing").sample(found)
    assert "No such file" in found.absent["host", names.STOLEN_TIME]


def test_pressure_is_read_and_a_kernel_without_it_said(tmp_path: Path) -> None:
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    write(
        tmp_path,
        proc__pressure__io=f"some {line.format(7)}full {line.format(3)}",
        proc__pressure__cpu=f"some {line.format(5)}",
    )
    found = Collected()
    PressureCollector(tmp_path).sample(found)
    assert found.last("host", "io_pressure_full") == 3000
    assert found.last("host", "cpu_pressure_some") == 5000
    assert "No such file" in found.absent["host", "memory_pressure"]


def test_energy_is_counted_over_the_wrap_of_its_counter(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "sys__class__powercap__intel-rapl:0__name": "package-0\n",
            "sys__class__powercap__intel-rapl:0__max_energy_range_uj": "999\n",
            "sys__class__powercap__intel-rapl:0__energy_uj": "990\n",
        },
    )
    found, hardware = Collected(), HardwareCollector(tmp_path)
    hardware.sample(found)
    for value in (995, 4, 7):
        (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text(f"{value}\n")
        hardware.sample(found)
    hardware.close()
    assert found.values("intel-rapl:0 (package-0)", "energy") == [0, 5, 14, 17]


def test_temperatures_clocks_and_throttling_of_cpus(tmp_path: Path) -> None:
    write(
        tmp_path,
        sys__class__thermal__thermal_zone0__type="x86_pkg_temp\n",
        sys__class__thermal__thermal_zone0__temp="81000\n",
        sys__devices__system__cpu__cpu0__cpufreq__scaling_cur_freq="2400000\n",
        sys__devices__system__cpu__cpu0__thermal_throttle__core_throttle_count="6\n",
    )
    found, hardware = Collected(), HardwareCollector(tmp_path)
    hardware.sample(found)
    hardware.close()
    assert found.last("thermal_zone0 (x86_pkg_temp)", "temperature") == 81_000
    assert found.last("cpu 0", names.CPU_FREQUENCY) == 2_400_000_000
    assert found.last("cpu 0", "thermal_throttled") == 6
    assert found.absent["host", "energy"].startswith("no RAPL zone in")


def test_chips_are_read_by_their_own_names_and_single_cores_are_not(tmp_path: Path) -> None:
    write(
        tmp_path,
        sys__class__hwmon__hwmon0__name="coretemp\n",
        sys__class__hwmon__hwmon0__temp1_input="70000\n",
        sys__class__hwmon__hwmon0__temp1_label="Package id 0\n",
        sys__class__hwmon__hwmon0__temp2_input="71000\n",
        sys__class__hwmon__hwmon0__temp2_label="Core 0\n",
        sys__class__hwmon__hwmon1__name="psu\n",
        sys__class__hwmon__hwmon1__power1_average="215000000\n",
    )
    found, hardware = Collected(), HardwareCollector(tmp_path)
    hardware.sample(found)
    hardware.close()
    assert found.values("hwmon0 (coretemp Package id 0)", TEMPERATURE) == [70_000]
    assert found.values("hwmon1 (psu power1)", POWER) == [215_000_000]
    assert {sensor.subject.partition(" ")[0] for sensor in found.readings} == {"hwmon0", "hwmon1"}
    assert len(found.readings) == 2


def test_a_chip_behind_a_slow_bus_is_not_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        class__hwmon__hwmon0__temp1_input="70000\n",
        class__hwmon__hwmon1__temp1_input="40000\n",
        class__hwmon__hwmon2__temp1_input="50000\n",
    )
    took_ms = {"hwmon0": [30, 30], "hwmon1": [1], "hwmon2": [30, 1]}
    found = Collected()
    kept = list(chips(tmp_path, found, lambda path: took_ms[path.parent.name].pop(0) * 1_000_000))
    assert [path.parent.name for path, _, _ in kept] == ["hwmon1", "hwmon2"]
    assert found.absent["hwmon0 (unnamed temp1)", TEMPERATURE] == "a reading takes more than 20 ms"


def test_slow_chips_together_take_no_longer_than_half_a_second(tmp_path: Path) -> None:
    root = tmp_path / "class/hwmon"
    write(root, **{f"hwmon{at}__temp1_input": "40000\n" for at in range(9)})
    asked: list[str] = []

    def slow(path: Path) -> int:
        asked.append(path.parent.name)
        return 100_000_000

    found = Collected()
    assert list(chips(tmp_path, found, slow)) == []
    assert asked == ["hwmon0", "hwmon0", "hwmon1", "hwmon1", "hwmon2", "hwmon2"]
    assert found.absent["hwmon3 (unnamed temp1)", TEMPERATURE] == "the chips before it take more than 500 ms"


def test_a_label_that_is_not_utf_8_leaves_all_sensors_readable(tmp_path: Path) -> None:
    write(tmp_path, sys__class__hwmon__hwmon0__temp1_input="70000\n", sys__class__hwmon__hwmon0__name="psu\n")
    (tmp_path / "sys/class/hwmon/hwmon0/temp1_label").write_bytes(b"inlet \xb0C\n")
    found = Collected()
    HardwareCollector(tmp_path).sample(found)
    assert found.values("hwmon0 (psu inlet \ufffdC)", TEMPERATURE) == [70_000]


def test_each_input_of_a_chip_is_a_sensor_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path / "class/hwmon/hwmon0",
        name="psu\n",
        power1_input="1\n",
        power1_average="2\n",
        power2_average="3\n",
        temp1_input="4\n",
        temp1_label="inlet\n",
        temp2_input="5\n",
        temp2_label="inlet\n",
        temp3_input="6\n",
        temp3_label="outlet\n",
    )
    assert {sensor.subject: path.name for path, sensor, _ in chips(tmp_path, Collected(), lambda _: 0)} == {
        "hwmon0 (psu power1)": "power1_input",
        "hwmon0 (psu power2)": "power2_average",
        "hwmon0 (psu inlet temp1)": "temp1_input",
        "hwmon0 (psu inlet temp2)": "temp2_input",
        "hwmon0 (psu outlet)": "temp3_input",
    }


def test_a_machine_without_any_of_them_says_each(tmp_path: Path) -> None:
    found = Collected()
    HardwareCollector(tmp_path).sample(found)
    assert {name for _, name in found.absent} == {"temperature", TEMPERATURE, POWER, "frequency", "energy"}
    assert not found.readings


def test_retransmitted_segments(tmp_path: Path) -> None:
    write(tmp_path, proc__net__snmp="Ip: A\nIp: 1\nTcp: InSegs RetransSegs\nTcp: 5 42\n")
    found = Collected()
    NetworkCollector(tmp_path).sample(found)
    assert found.last("host", "tcp_retransmits") == 42
    write(tmp_path, proc__net__snmp="Tcp: InSegs\nTcp: 5\n")
    NetworkCollector(tmp_path).sample(found)
    assert "does not count" in found.absent["host", "tcp_retransmits"]


def test_counters_of_infiniband_ports(tmp_path: Path) -> None:
    ports = tmp_path / "sys/class/infiniband/mlx5_0/ports"
    for port, errors in (("1", "7"), ("2", "0")):
        for folder, name, value in (
            ("counters", "port_xmit_data", "1000"),
            ("counters", "symbol_error", errors),
            ("hw_counters", "out_of_sequence", "3"),
            ("hw_counters", "lifespan", "12"),
        ):
            (ports / port / folder).mkdir(parents=True, exist_ok=True)
            (ports / port / folder / name).write_text(f"{value}\n")
    collector, found = InfinibandCollector(tmp_path), Collected()
    collector.sample(found)
    assert found.last("port mlx5_0/1", "symbol_error") == 7
    assert found.last("port mlx5_0/1", "port_xmit_data") == 4000, "it counts words"
    assert found.last("port mlx5_0/2", "out_of_sequence") == 3
    assert {sensor.name for sensor in found.readings} == {"port_xmit_data", "symbol_error", "out_of_sequence"}
    (ports / "1/counters/symbol_error").write_text("N/A (no PMA)\n")
    collector.sample(found)
    collector.close()
    assert "does not contain a number" in found.absent["port mlx5_0/1", "symbol_error"]


def test_a_machine_without_infiniband_says_so(tmp_path: Path) -> None:
    found = Collected()
    InfinibandCollector(tmp_path).sample(found)
    assert "no counters of a port in" in found.absent["host", "infiniband_counters"]
    assert not found.readings


def test_processes_that_use_a_cpu_are_named_without_their_arguments(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    process = tmp_path / "proc/99"
    process.mkdir()
    (process / "comm").write_text("python3\n")
    (process / "cmdline").write_bytes(b"python3\0/home/me/burn.py\0--token=secret\0")
    found = Collected()
    processes = ProcessCollector(tmp_path, collector(tmp_path))
    for ticks in (0, 10_000_000):
        (process / "stat").write_text(stat(ticks))
        processes.sample(found)
    assert {sensor.subject for sensor in found.readings} == {"process 99 (python3 burn.py)"}
    assert found.last("process 99 (python3 burn.py)", names.LAST_CPU) == 3


class Workers:
    """Processes that each use a CPU from one look to the next."""

    def __init__(self, root: Path) -> None:
        rank_tree(root)
        self.root, self.found = root, Collected()
        self.processes = ProcessCollector(root, collector(root))

    def run(self, pids: range) -> None:
        for ticks in (0, 10_000_000):
            for pid in pids:
                files = {"comm": "worker\n", "cmdline": "", "stat": stat(ticks)}
                write(self.root, **{f"proc__{pid}__{name}": text for name, text in files.items()})
            self.look()

    def look(self) -> None:
        self.processes.sample(self.found)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    found = Workers(tmp_path)
    yield found
    found.processes.close()


def test_processes_that_have_ended_make_room_for_others(workers: Workers) -> None:
    """Workers of a loader are started anew in each epoch."""
    workers.run(range(1000, 1128))
    assert len(workers.found.readings) == 2 * 128 and not workers.found.absent
    workers.run(range(2000, 2001))
    assert len(workers.found.readings) == 2 * 128
    assert "more than 128 used CPUs at once" in workers.found.absent["host", "processes"]
    for pid in range(1000, 1100):
        shutil.rmtree(workers.root / f"proc/{pid}")
    workers.run(range(3000, 3001))
    assert workers.found.last("process 3000 (worker)", names.CPU_TIME)


def test_processes_that_use_no_cpu_any_more_make_room_for_others(workers: Workers) -> None:
    """Daemons work for a moment, and stay."""
    workers.run(range(1000, 1128))
    for _ in range(10):
        workers.look()
    workers.run(range(2000, 2001))
    assert workers.found.last("process 2000 (worker)", names.CPU_TIME) and not workers.found.absent
    sensors = set(workers.found.readings)
    given_up = next(
        pid for pid in range(1000, 1128) if len(workers.found.values(f"process {pid} (worker)", names.CPU_TIME)) == 12
    )
    for ticks in (10_000_000, 20_000_000):
        write(workers.root / "proc" / str(given_up), stat=stat(ticks))
        workers.look()
    assert workers.found.last(f"process {given_up} (worker)", names.CPU_TIME) == 20_000_000 * 10_000_000
    assert set(workers.found.readings) == sensors, "it has the sensors that it had"


def stat(ticks: int, started: int = 99) -> str:
    fields = STAT.replace("4711", "99").format(state="R").replace(" 250 50 ", f" {ticks} 0 ")
    return fields.replace(" 99 0 ", f" {started} 0 ", 1)


def test_a_process_with_the_pid_of_one_that_ended_is_another(tmp_path: Path) -> None:
    rank_tree(tmp_path)
    process = tmp_path / "proc/99"
    process.mkdir()
    (process / "comm").write_text("first\n")
    (process / "cmdline").write_bytes(b"")
    found, processes = Collected(), ProcessCollector(tmp_path, collector(tmp_path))
    for text in (stat(0), stat(10_000_000), stat(10_000_000), stat(20_000_000, started=100)):
        (process / "stat").write_text(text)
        processes.sample(found)
    assert [sensor.subject for sensor in found.readings] == ["process 99 (first)"] * 2
    assert len(found.values("process 99 (first)", names.CPU_TIME)) == 2, "the other one has used nothing so far"
    (process / "comm").write_text("second\n")
    (process / "stat").write_text(stat(40_000_000, started=100))
    processes.sample(found)
    assert found.values("process 99 (second)", names.CPU_TIME) == [40_000_000 * 10_000_000]
    processes.close()


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """How many this process may have open, for a moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(place.name) for place in Path("/proc/self/fd").iterdir()) + 80
    open_files.kept_below.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    open_files.kept_below.cache_clear()


def test_more_threads_than_files_may_be_open_are_all_read(tmp_path: Path, few_descriptors: int) -> None:
    rank_tree(tmp_path)
    for thread in range(PID + 2, PID + 2 + few_descriptors):
        write(tmp_path / "proc" / str(PID) / "task", **{f"{thread}__schedstat": "10 1 1\n"})
    found, ranks = Collected(), collector(tmp_path)
    for _ in range(2):
        ranks.sample(found)
    assert found.values("rank 3.1", names.THREADS_CPU_TIME) == [5040 + 10 * few_descriptors] * 2
    assert found.values("rank 3.1", names.CPU_TIME) == [5000] * 2
    ranks.close()


def test_the_sampler_may_open_as_many_files_as_the_machine_grants(few_descriptors: int) -> None:
    open_files.raise_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert few_descriptors < soft == min(hard, 1 << 16) or hard == resource.RLIM_INFINITY


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel has no schedstat")
def test_this_machines_own_files_are_understood() -> None:
    found, ranks = Collected(), RankCollector(Path("/"), EVERY_NS)
    ranks.watch("0", os.getpid())
    ranks.sample(found)
    ranks.close()
    ran = found.last("rank 0", names.CPU_TIME)
    assert ran is not None and ran > 0
    assert found.last("rank 0", names.LAST_CPU) in range(os.cpu_count() or 1)
