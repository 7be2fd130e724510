/* A histogram in windows: every rank adds to counters of the others; then every kind of call on a window is made. */

#include <string.h>

#include "check.h"

enum { BINS = 64 };

int main(void) {
    unisono_communicator world;
    CHECK(unisono_join(NULL, &world));
    uint32_t rank, size;
    CHECK(unisono_rank(world, &rank));
    CHECK(unisono_size(world, &size));
    uint32_t right = (rank + 1) % size, left = (rank + size - 1) % size;

    /* Counters: bin b is at rank b % size. Every rank adds 1 to each. */
    unisono_window counters;
    CHECK(unisono_allocate_window(world, BINS * sizeof(uint64_t), &counters));
    uint64_t one = 1;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        CHECK(unisono_accumulate(counters, &one, 1, UNISONO_UINT64, UNISONO_SUM, bin % size, bin / size * 8));
    }
    CHECK(unisono_fence(counters));
    uint64_t *own;
    size_t bytes;
    CHECK(unisono_window_memory(counters, rank, (void **)&own, &bytes));
    EXPECT(own != NULL && bytes == BINS * sizeof(uint64_t));
    for (uint32_t bin = rank; bin < BINS; bin += size) EXPECT(own[bin / size] == size);
    CHECK(unisono_fence(counters));

    /* A lock that no operation needs: a counter that is read and written. */
    for (int round = 0; round < 10; round++) {
        uint64_t value;
        CHECK(unisono_lock(counters, 0, true));
        CHECK(unisono_get(counters, &value, 1, UNISONO_UINT64, 0, 8 * (BINS - 1)));
        value += 1;
        CHECK(unisono_put(counters, &value, 1, UNISONO_UINT64, 0, 8 * (BINS - 1)));
        CHECK(unisono_unlock(counters, 0, true));
    }
    CHECK(unisono_barrier(world));
    uint64_t found = 0, none = 0;
    CHECK(unisono_get_accumulate(counters, &none, &found, 1, UNISONO_UINT64, UNISONO_NO_OP, 0, 8 * (BINS - 1)));
    EXPECT(found == 10 * size + (size == 1));

    /* One rank takes the ticket. */
    CHECK(unisono_barrier(world));
    uint32_t expected = 0, mine = rank + 1, old;
    CHECK(unisono_compare_and_swap(counters, &expected, &mine, &old, UNISONO_UINT32, 0, 8 * (BINS - 2) + 4));
    CHECK(unisono_flush_all(counters));
    uint64_t is_first = old == 0, firsts;
    CHECK(unisono_all_reduce(world, &is_first, &firsts, 1, UNISONO_UINT64, UNISONO_SUM));
    EXPECT(firsts == 1 && old <= size);

    /* Requests of all kinds, in one call. A rank alone has counted in these words before. */
    uint64_t before = 9, forty = 40, sum = 0, message = rank, came = 0;
    unisono_request all[5];
    size_t failed;
    CHECK(unisono_fence(counters));
    CHECK(unisono_request_accumulate(counters, &forty, 1, UNISONO_UINT64, UNISONO_SUM, right, 8 * (BINS - 3), &all[0]));
    CHECK(unisono_request_get_accumulate(counters, &forty, &before, 1, UNISONO_UINT64, UNISONO_REPLACE, rank,
                                         8 * (BINS - 4), &all[1]));
    CHECK(unisono_immediate_receive(world, &came, 1, UNISONO_UINT64, left, 5, &all[2]));
    CHECK(unisono_immediate_send(world, &message, 1, UNISONO_UINT64, right, 5, &all[3]));
    CHECK(unisono_immediate_all_reduce(world, &one, &sum, 1, UNISONO_UINT64, UNISONO_SUM, &all[4]));
    EXPECT(unisono_window_free(counters) == UNISONO_ERROR_UNDER_WAY);
    CHECK(unisono_wait_all(5, all, NULL, &failed));
    EXPECT(failed == 5 && before == (size == 1) && came == left && sum == size && all[0] == UNISONO_REQUEST_NULL);
    CHECK(unisono_request_put(counters, &forty, 1, UNISONO_UINT64, right, 8 * (BINS - 5), &all[0]));
    CHECK(unisono_wait(&all[0], NULL));
    CHECK(unisono_fence(counters));
    uint64_t words[3] = {0, 0, 0};
    CHECK(unisono_request_get(counters, words, 3, UNISONO_UINT64, rank, 8 * (BINS - 5), &all[0]));
    CHECK(unisono_wait(&all[0], NULL));
    EXPECT(words[0] == 40 && words[1] == 40 && words[2] == 40 + (uint64_t)(size == 1));
    EXPECT(unisono_request_get(counters, NULL, 3, UNISONO_UINT64, rank, 0, &all[0]) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_request_put(counters, words, 3, UNISONO_UINT64, right, 8 * BINS, &all[0]) == UNISONO_ERROR_WINDOW);
    CHECK(unisono_barrier(world));
    CHECK(unisono_window_free(counters));
    EXPECT(unisono_fence(counters) == UNISONO_ERROR_HANDLE);

    /* Columns of the program's own matrix, to the right, in an epoch of the two. */
    double matrix[8][4], halo[8];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) matrix[i][j] = rank * 100 + i * 10 + j;
    memset(halo, 0, sizeof halo);
    unisono_window halos;
    CHECK(unisono_create_window(world, halo, sizeof halo, &halos));
    unisono_datatype column;
    CHECK(unisono_datatype_vector(8, 1, 4, UNISONO_DOUBLE, &column));
    CHECK(unisono_post(halos, 1, &left));
    CHECK(unisono_start_epoch(halos, 1, &right));
    CHECK(unisono_put(halos, &matrix[0][3], 1, column, right, 0));
    CHECK(unisono_complete(halos));
    bool is_over = false;
    CHECK(unisono_test_epoch(halos, &is_over));
    if (!is_over) CHECK(unisono_wait_epoch(halos));
    for (int i = 0; i < 8; i++) EXPECT(halo[i] == left * 100 + i * 10 + 3);
    CHECK(unisono_barrier(world));

    /* The left neighbour's column back, into a column. */
    CHECK(unisono_lock_all(halos));
    CHECK(unisono_get(halos, &matrix[0][1], 1, column, right, 0));
    CHECK(unisono_flush(halos, right));
    CHECK(unisono_sync(halos));
    CHECK(unisono_unlock_all(halos));
    for (int i = 0; i < 8; i++) EXPECT(matrix[i][1] == rank * 100 + i * 10 + 3 && matrix[i][2] == rank * 100 + i * 10 + 2);

    /* A column into every second element there, and back. */
    unisono_datatype pairs;
    CHECK(unisono_datatype_vector(4, 1, 2, UNISONO_DOUBLE, &pairs));
    CHECK(unisono_lock_all(halos));
    CHECK(unisono_barrier(world));
    CHECK(unisono_put_typed(halos, &matrix[0][0], 4, UNISONO_DOUBLE, right, 8, 1, pairs));
    CHECK(unisono_flush(halos, right));
    CHECK(unisono_accumulate_typed(halos, &matrix[0][0], 4, UNISONO_DOUBLE, UNISONO_SUM, right, 8, 1, pairs));
    CHECK(unisono_flush(halos, right));
    double got[4];
    CHECK(unisono_get_typed(halos, got, 4, UNISONO_DOUBLE, right, 8, 1, pairs));
    for (int j = 0; j < 4; j++) EXPECT(got[j] == 2 * matrix[0][j]);
    EXPECT(unisono_put_typed(halos, got, 3, UNISONO_DOUBLE, right, 8, 1, pairs) == UNISONO_ERROR_LENGTH);
    EXPECT(unisono_get_typed(halos, got, 4, UNISONO_DOUBLE, right, 16, 1, pairs) == UNISONO_ERROR_WINDOW);
    CHECK(unisono_barrier(world));
    CHECK(unisono_unlock_all(halos));
    CHECK(unisono_datatype_free(pairs));

    /* What is wrong is an error, and harms nothing. */
    EXPECT(unisono_put(halos, &matrix[0][3], 1, column, right, 8) == UNISONO_ERROR_WINDOW);
    EXPECT(unisono_error_rank() == right);
    EXPECT(unisono_put(halos, NULL, 1, UNISONO_DOUBLE, right, 0) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_get(halos, halo, SIZE_MAX, UNISONO_DOUBLE, right, 0) == UNISONO_ERROR_DATATYPE);
    EXPECT(unisono_put(halos, halo, 1, UNISONO_DOUBLE, size, 0) == UNISONO_ERROR_RANK);
    unisono_result misaligned = unisono_accumulate(halos, halo, 1, UNISONO_DOUBLE, UNISONO_SUM, right, 4);
    if (misaligned == UNISONO_OK) misaligned = unisono_flush(halos, right);
    EXPECT(misaligned == UNISONO_ERROR_WINDOW);
    EXPECT(unisono_accumulate(halos, halo, 1, UNISONO_DOUBLE, UNISONO_BITWISE_OR, right, 0) == UNISONO_ERROR_OPERATION);
    EXPECT(unisono_accumulate(halos, halo, 1, UNISONO_BYTE, UNISONO_SUM, right, 0) == UNISONO_ERROR_OPERATION);
    EXPECT(unisono_create_window(world, halo, 8, NULL) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_post(halos, 1, NULL) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_all_reduce(world, &one, &found, 1, UNISONO_UINT64, UNISONO_REPLACE) != UNISONO_OK);
    CHECK(unisono_window_free(halos));
    CHECK(unisono_datatype_free(column));

    /* A window to which memory is attached later. */
    unisono_window dynamic;
    CHECK(unisono_create_dynamic_window(world, &dynamic));
    uint64_t attached[2] = {0, 0};
    CHECK(unisono_attach(dynamic, attached, sizeof attached));
    uint64_t address = (uint64_t)(uintptr_t)attached, there;
    unisono_status status;
    CHECK(unisono_send_receive(world, &address, 1, UNISONO_UINT64, left, 3, &there, 1, UNISONO_UINT64, right, 3, &status));
    uint64_t number = rank + 7;
    CHECK(unisono_put(dynamic, &number, 1, UNISONO_UINT64, right, (size_t)there + 8));
    CHECK(unisono_fence(dynamic));
    EXPECT(attached[0] == 0 && attached[1] == left + 7);
    CHECK(unisono_detach(dynamic, attached));
    CHECK(unisono_barrier(world));
    EXPECT(unisono_get(dynamic, &number, 1, UNISONO_UINT64, right, (size_t)there) != UNISONO_OK);
    CHECK(unisono_window_free(dynamic));

    CHECK(unisono_finish(world));
    if (rank == 0) printf("windows of %u ranks\n", size);
    return 0;
}
