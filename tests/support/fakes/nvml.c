/* A stand-in for NVIDIA's libnvidia-ml.so.1 with one GPU, for processes that load it: the numbers are those of an H100.
 *
 * In the folder FAKE_NVML, the file "used" has the bytes in use, and every call waits as long as "hang" is there.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, RESERVED = 503316480 };
static const unsigned long long TOTAL = 85520809984ULL;

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct utilization { unsigned gpu, memory; };

static const char *path(const char *name) {
    static char text[4096];
    const char *folder = getenv("FAKE_NVML");
    snprintf(text, sizeof text, "%s/%s", folder ? folder : "/nowhere", name);
    return text;
}

static int answer(void) {
    while (access(path("hang"), F_OK) == 0)
        usleep(10000);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return answer(); }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return answer(); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(1UL + index); return answer(); }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { (void)device; *now = *next = 0; return NOT_SUPPORTED; }

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    (void)device;
    memset(pci, 0, sizeof *pci);
    pci->device = 6;
    return answer();
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    (void)device;
    snprintf(name, size, "NVIDIA H100 80GB HBM3");
    return answer();
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    (void)device;
    snprintf(uuid, size, "GPU-0d8f1364-0d58-0170-c995-b1c52bc514a8");
    return answer();
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    (void)device;
    int result = answer();
    FILE *file = fopen(path("used"), "r");
    unsigned long long used = 0;
    if (file) {
        if (fscanf(file, "%llu", &used) != 1)
            used = 0;
        fclose(file);
    }
    memory->total = TOTAL;
    memory->reserved = RESERVED;
    memory->used = used;
    memory->free = TOTAL - RESERVED - used;
    return result;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) {
    (void)device;
    rates->gpu = 37;
    rates->memory = 0;
    return answer();
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *processes) {
    (void)device, (void)processes;
    *count = 0;
    return answer();
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, void *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}
