/* Regions: every rank writes its neighbour's memory by key, counts at rank 0, and is refused what it may not do. */

#include <string.h>

#include "check.h"

enum { WORDS = 5000 };

int main(void) {
    unisono_communicator world;
    CHECK(unisono_join(NULL, &world));
    uint32_t rank, size;
    CHECK(unisono_rank(world, &rank));
    CHECK(unisono_size(world, &size));
    uint32_t right = (rank + 1) % size, left = (rank + size - 1) % size;

    /* A region of the library's memory; its key goes to the left neighbour, which writes to it. */
    unisono_region region;
    CHECK(unisono_allocate_region(world, WORDS * sizeof(uint64_t), UNISONO_RIGHT_READ | UNISONO_RIGHT_WRITE, &region));
    unisono_rkey mine, theirs;
    CHECK(unisono_region_key(region, &mine));
    CHECK(unisono_send(world, &mine, sizeof mine, UNISONO_BYTE, left, 1));
    CHECK(unisono_receive(world, &theirs, sizeof theirs, UNISONO_BYTE, right, 1, NULL));
    unisono_remote_region there;
    CHECK(unisono_import_region(world, &theirs, &there));
    static uint64_t sent[WORDS], back[WORDS];
    for (int i = 0; i < WORDS; i++) sent[i] = (uint64_t)rank * WORDS + i;
    CHECK(unisono_region_put(there, sent, WORDS, UNISONO_UINT64, 0));
    CHECK(unisono_region_flush(there));
    CHECK(unisono_region_get(there, back, WORDS, UNISONO_UINT64, 0));
    EXPECT(memcmp(sent, back, sizeof sent) == 0);
    CHECK(unisono_barrier(world));
    uint64_t *own;
    size_t bytes;
    CHECK(unisono_region_memory(region, (void **)&own, &bytes));
    EXPECT(bytes == sizeof sent && own[0] == (uint64_t)left * WORDS && own[WORDS - 1] == own[0] + WORDS - 1);

    /* Requests, beside a message. */
    unisono_request all[2];
    size_t failed;
    uint64_t word = 7, found = 0;
    CHECK(unisono_barrier(world));
    CHECK(unisono_region_request_put(there, &word, 1, UNISONO_UINT64, 80, &all[0]));
    CHECK(unisono_region_request_get(there, &found, 1, UNISONO_UINT64, 160, &all[1]));
    CHECK(unisono_wait_all(2, all, NULL, &failed));
    EXPECT(failed == 2 && found == sent[20]);

    /* What is refused touches nothing, and later operations go on. */
    EXPECT(unisono_region_get_accumulate(there, &word, &found, 1, UNISONO_UINT64, UNISONO_SUM, 0) ==
           UNISONO_ERROR_WINDOW);
    EXPECT(unisono_region_put(there, sent, 2, UNISONO_UINT64, sizeof sent - 8) == UNISONO_ERROR_WINDOW);
    CHECK(unisono_region_get(there, &found, 1, UNISONO_UINT64, 0));
    EXPECT(found == sent[0]);
    CHECK(unisono_barrier(world));
    CHECK(unisono_region_revoke(region));
    EXPECT(unisono_region_revoke(region) == UNISONO_ERROR_HANDLE);
    CHECK(unisono_barrier(world));
    EXPECT(unisono_region_get(there, &found, 1, UNISONO_UINT64, 0) == UNISONO_ERROR_REVOKED);
    CHECK(unisono_remote_region_free(there));
    EXPECT(unisono_region_flush(there) == UNISONO_ERROR_HANDLE);

    /* Counters in rank 0's own variables. */
    static uint64_t counters[2];
    memset(&mine, 0, sizeof mine);
    unisono_region shared = 0;
    if (rank == 0) {
        CHECK(unisono_register_region(world, counters, sizeof counters, UNISONO_RIGHT_ATOMIC, &shared));
        CHECK(unisono_region_key(shared, &mine));
    }
    CHECK(unisono_broadcast(world, &mine, sizeof mine, UNISONO_BYTE, 0));
    CHECK(unisono_import_region(world, &mine, &there));
    uint64_t one = 1, ticket, zero = 0, taker = rank + 1, old;
    CHECK(unisono_region_get_accumulate(there, &one, &ticket, 1, UNISONO_UINT64, UNISONO_SUM, 0));
    EXPECT(ticket < 2 * (uint64_t)size);
    CHECK(unisono_region_compare_and_swap(there, &zero, &taker, &old, UNISONO_UINT64, 8));
    CHECK(unisono_region_accumulate(there, &one, 1, UNISONO_UINT64, UNISONO_SUM, 0));
    CHECK(unisono_region_flush(there));
    CHECK(unisono_barrier(world));
    if (rank == 0) {
        CHECK(unisono_region_revoke(shared));
        EXPECT(counters[0] == 2 * (uint64_t)size && counters[1] >= 1 && counters[1] <= size);
    }
    CHECK(unisono_remote_region_free(there));
    EXPECT(unisono_allocate_region(world, 8, 99, &region) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_import_region(world, NULL, &there) == UNISONO_ERROR_ARGUMENT);

    if (rank == 0) printf("regions of %u ranks\n", size);
    CHECK(unisono_finish(world));
    return 0;
}
