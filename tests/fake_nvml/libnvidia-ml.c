/* A library that stands in for NVIDIA's driver in tests. It is no measurement of any device, and says so: its devices are
 * named FAKE. What a script does not give returns NVML_ERROR_NOT_SUPPORTED.
 *
 * The script is the folder FAKE_NVML: a folder for each device (0, 1, ...) with a file for each reading, with lines
 * `MILLISECONDS VALUE`: the value holds from that time after nvmlInit on. `uuid` holds the device's UUID, `processes`
 * the PID of a process that computes on it. A field is `field_NUMBER`, of another scope than 0 `field_NUMBER_SCOPE`.
 * A reading may be an error: `MILLISECONDS error NUMBER`.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
enum { MOST_DEVICES = 16 };

typedef struct { int number; } Device;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned long long reference, violation; } Violation;
typedef struct { unsigned int pid; unsigned long long memory; unsigned int instance, compute_instance; } Process;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    int type, result;
    union { double number; unsigned long long whole; } value;
} Field;

static Device devices[MOST_DEVICES];
static struct timespec begun;

static FILE *script(const Device *device, const char *name) {
    const char *folder = getenv("FAKE_NVML");
    char path[PATH_MAX];
    if (folder == NULL) return NULL;
    snprintf(path, sizeof path, "%s/%d/%s", folder, device->number, name);
    return fopen(path, "r");
}

static long long elapsed_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begun.tv_sec) * 1000LL + (now.tv_nsec - begun.tv_nsec) / 1000000;
}

static int read_value(const Device *device, const char *name, unsigned long long *value) {
    FILE *file = script(device, name);
    char line[256];
    int result = NOT_SUPPORTED;
    long long now = elapsed_ms();
    if (file == NULL) return NOT_SUPPORTED;
    while (fgets(line, sizeof line, file) != NULL) {
        long long from;
        unsigned long long found;
        int error;
        if (sscanf(line, "%lld error %d", &from, &error) == 2) {
            if (from <= now) result = error;
        } else if (sscanf(line, "%lld %llu", &from, &found) == 2 && from <= now) {
            *value = found;
            result = SUCCESS;
        }
    }
    fclose(file);
    return result;
}

static int read_unsigned(const Device *device, const char *name, unsigned int *value) {
    unsigned long long found = 0;
    int result = read_value(device, name, &found);
    if (result == SUCCESS) *value = (unsigned int)found;
    return result;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) {
    switch (result) {
        case SUCCESS: return "Success";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case 15: return "GPU is lost";
    }
    return "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 0;
    for (int number = 0; number < MOST_DEVICES; number++) {
        Device device = {number};
        FILE *file = script(&device, "uuid");
        if (file == NULL) break;
        fclose(file);
        *count = (unsigned int)number + 1;
    }
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device) {
    if (index >= MOST_DEVICES) return INVALID_ARGUMENT;
    devices[index].number = (int)index;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(const Device *device, char *uuid, unsigned int length) {
    FILE *file = script(device, "uuid");
    if (file == NULL) return NOT_SUPPORTED;
    if (fgets(uuid, (int)length, file) == NULL) uuid[0] = 0;
    uuid[strcspn(uuid, "\n")] = 0;
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceGetName(const Device *device, char *name, unsigned int length) {
    snprintf(name, length, "FAKE device %d", device->number);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(const Device *d, unsigned int *value) { return read_unsigned(d, "power", value); }

int nvmlDeviceGetTotalEnergyConsumption(const Device *d, unsigned long long *value) {
    return read_value(d, "energy", value);
}

int nvmlDeviceGetTemperature(const Device *d, int sensor, unsigned int *value) {
    return sensor == 0 ? read_unsigned(d, "temperature", value) : INVALID_ARGUMENT;
}

int nvmlDeviceGetClockInfo(const Device *d, int clock, unsigned int *value) {
    return read_unsigned(d, clock == 1 ? "sm_clock" : clock == 2 ? "memory_clock" : "other_clock", value);
}

int nvmlDeviceGetUtilizationRates(const Device *d, Utilization *value) {
    value->memory = 0;
    return read_unsigned(d, "utilization", &value->gpu);
}

int nvmlDeviceGetCurrentClocksEventReasons(const Device *d, unsigned long long *value) {
    return read_value(d, "throttle_reasons", value);
}

int nvmlDeviceGetViolationStatus(const Device *d, int policy, Violation *value) {
    value->reference = 0;
    return read_value(d, policy == 0 ? "power_throttled" : policy == 1 ? "thermal_throttled" : "other", &value->violation);
}

int nvmlDeviceGetTotalEccErrors(const Device *d, int kind, int counter, unsigned long long *value) {
    (void)counter;
    return read_value(d, kind == 0 ? "ecc_corrected" : "ecc_uncorrected", value);
}

int nvmlDeviceGetRemappedRows(const Device *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    *pending = *failed = 0;
    int result = read_unsigned(d, "remapped_rows_corrected", corrected);
    return result == SUCCESS ? read_unsigned(d, "remapped_rows_uncorrected", uncorrected) : result;
}

int nvmlDeviceGetRetiredPages(const Device *d, int cause, unsigned int *count, unsigned long long *addresses) {
    unsigned int room = *count, retired = 0;
    int result = read_unsigned(d, cause == 0 ? "retired_pages_corrected" : "retired_pages_uncorrected", &retired);
    if (result != SUCCESS) return result;
    *count = retired;
    if (addresses == NULL ? retired > 0 : room < retired) return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < retired; i++) addresses[i] = i << 12;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const Device *d, unsigned int *count, Process *processes) {
    unsigned int room = *count;
    FILE *file = script(d, "processes");
    *count = 0;
    if (file == NULL) return SUCCESS;
    unsigned int pid = 0;
    int found = fscanf(file, "%u", &pid);
    fclose(file);
    if (found != 1) return SUCCESS;
    *count = 1;
    if (room < 1) return INSUFFICIENT_SIZE;
    memset(processes, 0, sizeof *processes);
    processes[0].pid = pid;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(const Device *d, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, fields[i].scope ? "field_%u_%u" : "field_%u", fields[i].field, fields[i].scope);
        fields[i].type = 3; /* unsigned long long */
        fields[i].result = read_value(d, name, &fields[i].value.whole);
    }
    return SUCCESS;
}
