"""NVIDIA's GPUs by NVML, through nvidia-ml-py (extra `telemetry`). Devices are named by their UUIDs.

What a device or its driver does not support is missing, with NVML's own words, and is not asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor, Sink

ABSENT = "nvml"
_EVERY_NS = 100_000_000
_NEVER_NS = 1 << 62
_ALL_LINKS = 0xFFFFFFFF  # the scope of a field that is asked for as the sum over all NVLinks
_SELDOM = 10  # looks between those that ask for errors and for the processes of a device

_Read = Callable[[Any, Any], int]  # of pynvml and a device's handle


@dataclass(frozen=True, slots=True)
class _Reading:
    name: str
    unit: str
    kind: Kind
    read: _Read
    is_seldom: bool = False


@dataclass(slots=True)
class _Device:
    handle: Any
    uuid: str
    provenance: Provenance
    sensors: dict[str, Sensor] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)

    @property
    def subject(self) -> str:
        return gpu_subject(self.uuid)


class NvidiaCollector:
    """`ranks`: their subjects by PID, as they are here. `library`: pynvml, where it is not to be imported."""

    name = "nvidia"
    every_ns = 0

    def __init__(self, ranks: Callable[[], Mapping[int, str]], library: Any = None) -> None:
        self._ranks = ranks
        self._library = library
        self._devices: list[_Device] | None = None
        self._looks = 0

    def sample(self, sink: Sink) -> None:
        if self._devices is None:
            self._devices = self._begin(sink)
            self.every_ns = _EVERY_NS if self._devices else _NEVER_NS
        seldom = self._looks % _SELDOM == 0
        self._looks += 1
        for device in self._devices:
            for reading in _READINGS:
                if (seldom or not reading.is_seldom) and reading.name not in device.unsupported:
                    self._read(device, reading, sink)
        if seldom and self._devices:
            self._map_ranks(sink)

    def close(self) -> None:
        if self._devices:
            self._library.nvmlShutdown()

    def _begin(self, sink: Sink) -> list[_Device]:
        try:
            if self._library is None:
                import pynvml

                self._library = pynvml
            self._library.nvmlInit()
        except ImportError:
            sink.missing("gpu", ABSENT, "nvidia-ml-py is not installed (pip install 'prismdbg[telemetry]')")
            return []
        except self._library.NVMLError as error:
            sink.missing("gpu", ABSENT, str(error))
            return []
        return list(self._find(sink))

    def _find(self, sink: Sink) -> Iterator[_Device]:
        nvml = self._library
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid, title = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
            except nvml.NVMLError as error:
                sink.missing(f"gpu {index}", ABSENT, str(error))
                continue
            provenance = Provenance.FAKE if "FAKE" in title else Provenance.MEASURED
            sink.text(gpu_subject(uuid), "name", title)
            yield _Device(handle, uuid, provenance)

    def _read(self, device: _Device, reading: _Reading, sink: Sink) -> None:
        nvml = self._library
        try:
            value = reading.read(nvml, device.handle)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound) as error:
            device.unsupported.add(reading.name)
            sink.missing(device.subject, reading.name, str(error))
            return
        except nvml.NVMLError as error:
            sink.missing(device.subject, reading.name, str(error))
            return
        if reading.name not in device.sensors:
            device.sensors[reading.name] = Sensor(
                device.subject, reading.name, reading.unit, reading.kind, device.provenance
            )
        sink.reading(device.sensors[reading.name], value)

    def _map_ranks(self, sink: Sink) -> None:
        """Which devices a rank computes on: those that list its process."""
        nvml, ranks = self._library, self._ranks()
        used: dict[str, list[str]] = {}
        for device in self._devices or ():
            try:
                processes = nvml.nvmlDeviceGetComputeRunningProcesses(device.handle)
            except nvml.NVMLError as error:
                sink.missing(device.subject, "processes", str(error))
                continue
            for process in processes:
                if process.pid in ranks:
                    used.setdefault(ranks[process.pid], []).append(device.uuid)
        for subject, uuids in used.items():
            sink.text(subject, names.DEVICE, ",".join(sorted(uuids)))


def gpu_subject(uuid: str) -> str:
    return f"gpu {uuid}"


def _field(name: str) -> _Read:
    """A value that NVML knows by a field's number; newer ones are not known to older versions of nvidia-ml-py."""

    def read(nvml: Any, handle: Any) -> int:
        (found,) = nvml.nvmlDeviceGetFieldValues(handle, [_number(nvml, name)])
        return _value(nvml, found)

    return read


def _links(name: str) -> _Read:
    """The bytes of all NVLinks, of a field in KiB. Where the driver does not add them up, its links are asked."""

    def read(nvml: Any, handle: Any) -> int:
        number = _number(nvml, name)
        (total,) = nvml.nvmlDeviceGetFieldValues(handle, [(number, _ALL_LINKS)])
        if total.nvmlReturn == nvml.NVML_SUCCESS:
            return 1024 * _value(nvml, total)
        asked = nvml.nvmlDeviceGetFieldValues(handle, [(number, link) for link in range(nvml.NVML_NVLINK_MAX_LINKS)])
        links = [link for link in asked if link.nvmlReturn == nvml.NVML_SUCCESS]
        return 1024 * sum(_value(nvml, link) for link in links or [total])

    return read


def _number(nvml: Any, name: str) -> Any:
    number = getattr(nvml, name, None)
    if number is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return number


def _value(nvml: Any, found: Any) -> int:
    if found.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(found.nvmlReturn)
    member = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        getattr(nvml, "NVML_VALUE_TYPE_SIGNED_INT", -1): "siVal",
    }.get(found.valueType)
    if member is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return int(getattr(found.value, member))


def _reasons(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError_FunctionNotFound:  # its name before driver 535
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _violation(policy: str) -> _Read:
    return lambda nvml, handle: int(nvml.nvmlDeviceGetViolationStatus(handle, getattr(nvml, policy)).violationTime)


def _ecc(kind: str) -> _Read:
    return lambda nvml, handle: int(
        nvml.nvmlDeviceGetTotalEccErrors(handle, getattr(nvml, kind), nvml.NVML_VOLATILE_ECC)
    )


def _retired(cause: str) -> _Read:
    """Of GPUs before Ampere, which has remapped rows instead."""
    name = f"NVML_PAGE_RETIREMENT_CAUSE_{cause}"
    return lambda nvml, handle: len(nvml.nvmlDeviceGetRetiredPages(handle, getattr(nvml, name)))


def _remapped(place: int) -> _Read:
    return lambda nvml, handle: int(nvml.nvmlDeviceGetRemappedRows(handle)[place])


_GAUGE, _COUNTER = Kind.GAUGE, Kind.COUNTER
_READINGS = (
    _Reading("power", "mW", _GAUGE, lambda nvml, h: int(nvml.nvmlDeviceGetPowerUsage(h))),
    _Reading("energy", "mJ", _COUNTER, lambda nvml, h: int(nvml.nvmlDeviceGetTotalEnergyConsumption(h))),
    _Reading(
        "temperature", "°C", _GAUGE, lambda nvml, h: int(nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU))
    ),
    _Reading("memory_temperature", "°C", _GAUGE, _field("NVML_FI_DEV_MEMORY_TEMP")),
    _Reading(names.SM_CLOCK, "MHz", _GAUGE, lambda nvml, h: int(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM))),
    _Reading("memory_clock", "MHz", _GAUGE, lambda nvml, h: int(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM))),
    _Reading("utilization", "%", _GAUGE, lambda nvml, h: int(nvml.nvmlDeviceGetUtilizationRates(h).gpu)),
    _Reading(names.THROTTLE_REASONS, "bits", _GAUGE, _reasons),
    _Reading("power_throttled", "ns", _COUNTER, _violation("NVML_PERF_POLICY_POWER")),
    _Reading("thermal_throttled", "ns", _COUNTER, _violation("NVML_PERF_POLICY_THERMAL")),
    _Reading("pcie_sent", "bytes", _COUNTER, _field("NVML_FI_DEV_PCIE_COUNT_TX_BYTES")),
    _Reading("pcie_received", "bytes", _COUNTER, _field("NVML_FI_DEV_PCIE_COUNT_RX_BYTES")),
    _Reading("nvlink_sent", "bytes", _COUNTER, _links("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX")),
    _Reading("nvlink_received", "bytes", _COUNTER, _links("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX")),
    _Reading("ecc_corrected", "errors", _COUNTER, _ecc("NVML_MEMORY_ERROR_TYPE_CORRECTED"), True),
    _Reading("ecc_uncorrected", "errors", _COUNTER, _ecc("NVML_MEMORY_ERROR_TYPE_UNCORRECTED"), True),
    _Reading("retired_pages_corrected", "pages", _COUNTER, _retired("MULTIPLE_SINGLE_BIT_ECC_ERRORS"), True),
    _Reading("retired_pages_uncorrected", "pages", _COUNTER, _retired("DOUBLE_BIT_ECC_ERROR"), True),
    _Reading("remapped_rows_corrected", "rows", _COUNTER, _remapped(0), True),
    _Reading("remapped_rows_uncorrected", "rows", _COUNTER, _remapped(1), True),
)
