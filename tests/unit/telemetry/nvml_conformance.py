"""What every NVML must give through the collector, the fake one and a driver: run as a program, prints JSON.

It runs in a process of its own, for the library that pynvml loads is chosen when the process starts.
"""

from __future__ import annotations

import json
import os
import sys

from telemetry_sink import Collected

from prismdbg.telemetry.collectors.nvidia import NvidiaCollector
from prismdbg.telemetry.sensor import Kind

LEVELS = {"power": 2_000_000, "temperature": 150, "memory_temperature": 150, "utilization": 100, "sm_clock": 10_000}


def conform(found: Collected) -> None:
    """Raises `AssertionError` where a reading is not what it is said to be."""
    for sensor, values in found.readings.items():
        assert (sensor.subject, sensor.name) not in found.absent, f"{sensor.name} is both read and missing"
        assert all(isinstance(value, int) and value >= 0 for value in values), sensor.name
        assert max(values) <= LEVELS.get(sensor.name, 2**63 - 1), f"{sensor.name}: {max(values)} {sensor.unit}"
        if sensor.kind is Kind.COUNTER:
            assert values == sorted(values), f"{sensor.name} counts down"
    assert all(found.absent.values()), "a sensor is missing for no reason"
    fakes = {sensor.subject for sensor in found.readings if sensor.provenance == "fake"}
    named = {subject for (subject, name), text in found.texts.items() if name == "name" and "FAKE" in text}
    assert fakes <= named, "only devices named FAKE are fake"
    assert not {sensor.subject for sensor in found.readings if sensor.provenance != "fake"} & named


def main() -> None:
    found = Collected()
    collector = NvidiaCollector(lambda: {int(os.environ.get("RANK_PID", "0")): "rank 3"})
    for _ in range(int(sys.argv[1])):
        collector.sample(found)
    collector.close()
    conform(found)
    print(
        json.dumps(
            {
                "readings": {
                    f"{sensor.subject}/{sensor.name}": [str(sensor.provenance), sensor.unit, values[-1]]
                    for sensor, values in found.readings.items()
                },
                "missing": {"/".join(key): why for key, why in found.absent.items()},
                "texts": {"/".join(key): text for key, text in found.texts.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
