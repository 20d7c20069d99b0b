/* A libnvidia-ml.so.1 for tests, loaded by the real nvidia-ml-py in the real reader child.

   It does what the file named in NVML_DOUBLE says, read again at every call, so that a test can
   change the machine while it is looked at:

       init RC             nvmlInit answers RC (9 not loaded, 18 version mismatch, ...)
       hang                nvmlDeviceGetCount never returns
       crash               nvmlDeviceGetCount ends the process by SIGSEGV
       gpu UUID TOTAL FREE NAME...
       handle GPU RC       the GPU's handle answers RC (15 lost)
       memory GPU RC       its memory answers RC (3 not supported)
       list GPU RC         its list of processes answers RC (4 no permission)
       process GPU PID BYTES|na c|g
       mig GPU UUID TOTAL FREE   an instance of the GPU, which is then divided
       health GPU CELSIUS REASONS ECC PENDING FAILED RETIRING PERSISTENT SHOWN BUSY
                                 numbers; without this line none of it is supported

   Layouts and two-phase calls as nvidia-ml-py 13 expects them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { int gpu; char kind; Process process; } Listed;
typedef struct {
    char uuid[96], name[96];
    unsigned long long total, free;
    int handle, memory, list, parts, parent, told;
    unsigned long long health[9];
} Gpu;

static struct { Gpu gpus[8]; int gpu_count, part_count; Listed listed[64]; int listed_count; int init, hang, crash; } box;
static int ready;

static void look(void) {
    char line[512];
    FILE *file = fopen(getenv("NVML_DOUBLE") ? getenv("NVML_DOUBLE") : "/nonexistent", "r");
    memset(&box, 0, sizeof box);
    while (file && fgets(line, sizeof line, file)) {
        Gpu *gpu = &box.gpus[box.gpu_count];
        Listed *row = &box.listed[box.listed_count];
        char bytes[32];
        int at, code;
        if (sscanf(line, "init %d", &code) == 1) box.init = code;
        else if (!strncmp(line, "hang", 4)) box.hang = 1;
        else if (!strncmp(line, "crash", 5)) box.crash = 1;
        else if (sscanf(line, "gpu %95s %llu %llu %95[^\n]", gpu->uuid, &gpu->total, &gpu->free, gpu->name) == 4) box.gpu_count++;
        else if (sscanf(line, "mig %d %95s %llu %llu", &at, box.gpus[7 - box.part_count].uuid, &box.gpus[7 - box.part_count].total, &box.gpus[7 - box.part_count].free) == 4) {
            box.gpus[7 - box.part_count++].parent = at;  /* instances from the end of the table */
            box.gpus[at].parts++;
        }
        else if (!strncmp(line, "health", 6)) {
            unsigned long long h[9];
            if (sscanf(line, "health %d %llu %llu %llu %llu %llu %llu %llu %llu %llu", &at, h, h + 1, h + 2, h + 3, h + 4, h + 5, h + 6, h + 7, h + 8) == 10) {
                memcpy(box.gpus[at].health, h, sizeof h);
                box.gpus[at].told = 1;
            }
        }
        else if (sscanf(line, "handle %d %d", &at, &code) == 2) box.gpus[at].handle = code;
        else if (sscanf(line, "memory %d %d", &at, &code) == 2) box.gpus[at].memory = code;
        else if (sscanf(line, "list %d %d", &at, &code) == 2) box.gpus[at].list = code;
        else if (sscanf(line, "process %d %u %31s %c", &row->gpu, &row->process.pid, bytes, &row->kind) == 4) {
            row->process.bytes = strcmp(bytes, "na") ? strtoull(bytes, NULL, 10) : ~0ull;
            row->process.gpu_instance = row->process.compute_instance = ~0u;
            box.listed_count++;
        }
    }
    if (file) fclose(file);
}

static Gpu *at(void *handle) {
    size_t number = (size_t)handle;
    look();
    int part = number > (size_t)(8 - box.part_count) && number <= 8;
    return ready && number >= 1 && (number <= (size_t)box.gpu_count || part) ? &box.gpus[number - 1] : NULL;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; look(); if (!box.init) ready++; return box.init; }
int nvmlShutdown(void) { if (!ready) return UNINITIALIZED; ready--; return SUCCESS; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.105"); return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    look();
    while (box.hang) pause();
    if (box.crash) raise(SIGSEGV);
    *count = box.gpu_count;
    return ready ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    look();
    if (index >= (unsigned)box.gpu_count) return INVALID;
    *handle = (void *)(size_t)(index + 1);
    return box.gpus[index].handle;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    Gpu *gpu = at(handle);
    if (gpu) snprintf(text, size, "%s", gpu->uuid);
    return gpu ? SUCCESS : INVALID;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    Gpu *gpu = at(handle);
    if (gpu) snprintf(text, size, "%s", gpu->name);
    return gpu ? SUCCESS : INVALID;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    Gpu *gpu = at(handle);
    if (!gpu) return INVALID;
    memory->total = gpu->total;
    memory->free = gpu->free;
    memory->used = gpu->total - gpu->free;
    return gpu->memory;
}

static int list(void *handle, unsigned *count, Process *out, char kind) {
    Gpu *gpu = at(handle);
    unsigned found = 0;
    if (!gpu) return INVALID;
    if (gpu->list) return gpu->list;
    for (int i = 0; i < box.listed_count; i++) {
        Listed *row = &box.listed[i];
        if (row->gpu != gpu - box.gpus || row->kind != kind) continue;
        if (out && found < *count) out[found] = row->process;
        found++;
    }
    int fits = found == 0 || (out && found <= *count);
    *count = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) { return list(handle, count, out, 'c'); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, Process *out) { return list(handle, count, out, 'g'); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) { return list(handle, count, out, 'm'); }

static int told(void *handle, int which, unsigned *out) {
    Gpu *gpu = at(handle);
    if (!gpu) return INVALID;
    if (!gpu->told) return NOT_SUPPORTED;
    *out = (unsigned)gpu->health[which];
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *out) { (void)sensor; return told(handle, 0, out); }
int nvmlDeviceGetRetiredPagesPendingStatus(void *handle, unsigned *out) { return told(handle, 5, out); }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *out) { return told(handle, 6, out); }
int nvmlDeviceGetDisplayActive(void *handle, unsigned *out) { return told(handle, 7, out); }

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *out) {
    unsigned low = 0;
    int code = told(handle, 1, &low);
    *out = low;
    return code;
}

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned since, unsigned long long *out) {
    unsigned low = 0;
    int code = told(handle, 2, &low);
    *out = kind == 1 && since == 0 ? low : 999;  /* uncorrected, volatile: what is asked for */
    return code;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = 0;
    int code = told(handle, 3, pending);
    return code ? code : told(handle, 4, failed);
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned out[2]) { out[1] = 0; return told(handle, 8, out); }

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    Gpu *gpu = at(handle);
    if (!gpu) return INVALID;
    *current = *pending = gpu->parts > 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { (void)handle; *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **part) {
    Gpu *gpu = at(handle);
    for (int i = 0; gpu && i < box.part_count; i++)
        if (box.gpus[7 - i].parent == gpu - box.gpus && index-- == 0) {
            *part = (void *)(size_t)(8 - i);
            return SUCCESS;
        }
    return NOT_FOUND;
}
