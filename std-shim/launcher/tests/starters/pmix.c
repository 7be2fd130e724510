/* A double of libpmix for ranks of one host, which meet in the folder DOUBLE_FOLDER. It has what unisono-starter calls;
 * ranks 0 and 1 are on node 0, 2 and 3 on node 1, and so on. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    char nspace[256];
    uint32_t rank;
} pmix_proc_t;

typedef struct {
    uint16_t type;
    union {
        char *string;
        int integer;
        uint16_t uint16;
        uint32_t uint32;
        struct {
            char *envar, *value;
            char separator;
        } envar;
    } data;
} pmix_value_t;

typedef struct {
    char key[512];
    uint32_t flags;
    pmix_value_t value;
} pmix_info_t;

enum { PMIX_SUCCESS = 0, PMIX_ERR_TIMEOUT = -24, PMIX_ERR_NOT_FOUND = -46 };
enum { PMIX_STRING = 3, PMIX_INT = 6, PMIX_UINT16 = 13, PMIX_UINT32 = 14 };
enum { PMIX_GLOBAL = 3 };

static unsigned number(const char *variable) {
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

static FILE *file(const char *name, unsigned rank, const char *mode) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%u", getenv("DOUBLE_FOLDER"), name, rank);
    return fopen(path, mode);
}

static void mark(const char *name) {
    FILE *made = file(name, number("PMIX_RANK"), "w");
    if (made)
        fclose(made);
}

int PMIx_Init(pmix_proc_t *own, pmix_info_t *info, size_t count) {
    (void)info, (void)count;
    if (!getenv("DOUBLE_FOLDER"))
        return -25;
    snprintf(own->nspace, sizeof own->nspace, "%s", getenv("PMIX_NAMESPACE"));
    own->rank = number("PMIX_RANK");
    return PMIX_SUCCESS;
}

int PMIx_Get(const pmix_proc_t *of, const char *key, const pmix_info_t *info, size_t count, pmix_value_t **value) {
    (void)info, (void)count;
    if (strcmp(of->nspace, getenv("PMIX_NAMESPACE")))
        return PMIX_ERR_NOT_FOUND;
    pmix_value_t *found = calloc(1, sizeof *found);
    int whole_job = of->rank == UINT32_MAX - 1;
    found->type = PMIX_UINT32;
    if (!strcmp(key, "pmix.job.size") && whole_job) {
        found->data.uint32 = number("DOUBLE_SIZE");
    } else if (!strcmp(key, "pmix.local.size") && whole_job) {
        found->data.uint32 = 2;
    } else if (!strcmp(key, "pmix.nodeid") && !whole_job) {
        found->data.uint32 = of->rank / 2;
    } else if (!strcmp(key, "pmix.lrank") && !whole_job) {
        found->type = PMIX_UINT16;
        found->data.uint16 = of->rank % 2;
    } else {
        FILE *stored = file(key, of->rank, "r");
        char text[4096] = "";
        if (!stored || !fgets(text, sizeof text, stored)) {
            free(found);
            return PMIX_ERR_NOT_FOUND;
        }
        fclose(stored);
        found->type = PMIX_STRING;
        found->data.string = strdup(text);
    }
    *value = found;
    return PMIX_SUCCESS;
}

int PMIx_Put(uint8_t scope, const char *key, pmix_value_t *value) {
    FILE *stored = file(key, number("PMIX_RANK"), "w");
    if (!stored || scope != PMIX_GLOBAL || value->type != PMIX_STRING)
        return -1;
    fputs(value->data.string, stored);
    return fclose(stored);
}

int PMIx_Commit(void) {
    return PMIX_SUCCESS;
}

int PMIx_Fence(const pmix_proc_t *procs, size_t ranks, const pmix_info_t *info, size_t count) {
    if (procs || ranks || count != 1 || strcmp(info->key, "pmix.timeout") || info->value.type != PMIX_INT)
        return -1;
    mark("fenced");
    time_t end = time(NULL) + info->value.data.integer + 1;
    for (unsigned rank = 0; rank < number("DOUBLE_SIZE"); rank++) {
        FILE *fenced;
        while (!(fenced = file("fenced", rank, "r"))) {
            if (time(NULL) >= end)
                return PMIX_ERR_TIMEOUT;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        fclose(fenced);
    }
    return PMIX_SUCCESS;
}

int PMIx_Finalize(const pmix_info_t *info, size_t count) {
    (void)info, (void)count;
    mark("finalized");
    return PMIX_SUCCESS;
}

int PMIx_Abort(int status, const char *message, pmix_proc_t *procs, size_t count) {
    (void)message, (void)procs, (void)count;
    _exit(status);
}
