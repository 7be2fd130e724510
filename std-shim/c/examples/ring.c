/* A token visits every rank; then every kind of call is made once. */

#include <string.h>

#include "check.h"

/* An operation that does not commute: the right operand wins. */
static void last(const void *left, const void *right, void *result, size_t count, void *context) {
    size_t *calls = (size_t *)context;
    (void)left;
    memmove(result, right, count * 12);
    *calls += 1;
}

int main(void) {
    unisono_communicator world;
    CHECK(unisono_join(NULL, &world));
    uint32_t rank, size;
    CHECK(unisono_rank(world, &rank));
    CHECK(unisono_size(world, &size));
    uint32_t right = (rank + 1) % size, left = (rank + size - 1) % size;

    /* The token, which counts its visits. */
    uint64_t token = 0;
    if (rank == 0) {
        CHECK(unisono_send(world, &token, 1, UNISONO_UINT64, right, 1));
    }
    unisono_status status;
    CHECK(unisono_receive(world, &token, 1, UNISONO_UINT64, left, 1, &status));
    EXPECT(status.source == left && status.tag == 1 && status.bytes == 8);
    token += 1;
    if (rank != 0) {
        CHECK(unisono_send(world, &token, 1, UNISONO_UINT64, right, 1));
    } else {
        EXPECT(token == size);
        printf("the token visited %llu ranks\n", (unsigned long long)token);
    }

    /* A column of a matrix to the right, into a column of another matrix, by requests. */
    double from[64][3], into[64][5];
    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 3; j++) from[i][j] = rank * 1000 + i;
        for (int j = 0; j < 5; j++) into[i][j] = -1;
    }
    unisono_datatype column, wide;
    CHECK(unisono_datatype_vector(64, 1, 3, UNISONO_DOUBLE, &column));
    CHECK(unisono_datatype_vector(64, 1, 5, UNISONO_DOUBLE, &wide));
    unisono_request requests[2];
    unisono_status statuses[2];
    CHECK(unisono_immediate_receive(world, &into[0][2], 1, wide, UNISONO_ANY_SOURCE, UNISONO_ANY_TAG, &requests[0]));
    CHECK(unisono_immediate_synchronous_send(world, &from[0][1], 1, column, right, 2, &requests[1]));
    CHECK(unisono_wait_all(2, requests, statuses, NULL));
    EXPECT(requests[0] == UNISONO_REQUEST_NULL && statuses[0].source == left);
    size_t count;
    CHECK(unisono_count(&statuses[0], UNISONO_DOUBLE, &count));
    EXPECT(count == 64);
    for (int i = 0; i < 64; i++) EXPECT(into[i][2] == left * 1000 + i && into[i][1] == -1 && into[i][3] == -1);

    /* A probe, and a message of its length. */
    char text[32];
    int length = snprintf(text, sizeof text, "from rank %u", rank);
    CHECK(unisono_immediate_send(world, text, (size_t)length, UNISONO_CHAR, right, 3, &requests[0]));
    unisono_message message;
    char *text_received;
    CHECK(unisono_matched_probe(world, left, 3, &message, &status));
    text_received = (char *)calloc(status.bytes + 1, 1);
    CHECK(unisono_receive_message(message, text_received, status.bytes, UNISONO_CHAR, NULL));
    char expected[32];
    snprintf(expected, sizeof expected, "from rank %u", left);
    EXPECT(strcmp(text_received, expected) == 0);
    free(text_received);
    CHECK(unisono_wait(&requests[0], NULL));

    /* Persistent messages, and one from an attached buffer. */
    uint64_t given_on = 0, taken_over = 0;
    unisono_request ring[2];
    CHECK(unisono_persistent_receive(world, &taken_over, 1, UNISONO_UINT64, left, 4, &ring[0]));
    CHECK(unisono_persistent_send(world, &given_on, 1, UNISONO_UINT64, right, 4, &ring[1]));
    for (uint64_t i = 0; i < 3; i++) {
        given_on = i * size + rank;
        CHECK(unisono_start_all(2, ring, NULL));
        EXPECT(unisono_start(ring[0]) == UNISONO_ERROR_UNDER_WAY);
        CHECK(unisono_wait_all(2, ring, statuses, NULL));
        EXPECT(taken_over == i * size + left && statuses[0].source == left);
    }
    CHECK(unisono_request_free(&ring[0]));
    CHECK(unisono_request_free(&ring[1]));
    EXPECT(unisono_buffered_send(world, &token, 1, UNISONO_UINT64, right, 5) == UNISONO_ERROR_RESOURCES);
    static char room[400000];
    CHECK(unisono_attach_buffer(world, room, sizeof room));
    EXPECT(unisono_attach_buffer(world, room, sizeof room) == UNISONO_ERROR_UNDER_WAY);
    static char many[390000], came[390000];
    memset(many, (int)rank, sizeof many);
    CHECK(unisono_buffered_send(world, many, sizeof many, UNISONO_CHAR, right, 5));
    CHECK(unisono_barrier(world));
    if (size > 1) { /* A message to itself has left at once. */
        EXPECT(unisono_buffered_send(world, many, sizeof many, UNISONO_CHAR, right, 5) == UNISONO_ERROR_RESOURCES);
    }
    CHECK(unisono_barrier(world));
    CHECK(unisono_receive(world, came, sizeof came, UNISONO_CHAR, left, 5, NULL));
    EXPECT(came[0] == (char)left && came[sizeof came - 1] == (char)left);
    CHECK(unisono_detach_buffer(world));
    EXPECT(unisono_detach_buffer(world) == UNISONO_ERROR_ARGUMENT);

    /* Collectives: blocking, immediate, persistent, in place; an operation of this program on structures. */
    CHECK(unisono_barrier(world));
    int32_t number = rank == size - 1 ? 42 : 0;
    CHECK(unisono_broadcast(world, &number, 1, UNISONO_INT32, size - 1));
    EXPECT(number == 42);
    uint32_t *all = (uint32_t *)calloc(size, sizeof *all);
    CHECK(unisono_immediate_all_gather(world, &rank, 1, UNISONO_UINT32, all, size, UNISONO_UINT32, &requests[0]));
    size_t index;
    CHECK(unisono_wait_any(1, requests, &index, NULL));
    for (uint32_t i = 0; i < size; i++) EXPECT(all[i] == i);
    double sum = rank;
    CHECK(unisono_all_reduce(world, UNISONO_IN_PLACE, &sum, 1, UNISONO_DOUBLE, UNISONO_SUM));
    EXPECT(sum == size * (size - 1) / 2.0);
    double share = rank, scanned = 0;
    unisono_request scan;
    CHECK(unisono_persistent_scan(world, &share, &scanned, 1, UNISONO_DOUBLE, UNISONO_MAX, &scan));
    for (int i = 0; i < 3; i++) {
        CHECK(unisono_start(scan));
        CHECK(unisono_wait(&scan, NULL));
        EXPECT(scanned == rank);
    }
    CHECK(unisono_request_free(&scan));
    struct { uint32_t part[3]; } record = {{rank, rank, rank}}, latest = {{0, 0, 0}};
    size_t three[1] = {3};
    ptrdiff_t begin[1] = {0};
    unisono_datatype triple;
    CHECK(unisono_datatype_indexed(1, three, begin, UNISONO_UINT32, &triple));
    size_t calls = 0;
    unisono_operation operation;
    CHECK(unisono_operation_create(last, false, &calls, &operation));
    CHECK(unisono_reduce(world, &record, &latest, 1, triple, operation, 0));
    EXPECT(rank != 0 || latest.part[2] == size - 1);
    size_t *counts = (size_t *)calloc(size, sizeof *counts), *places = (size_t *)calloc(size, sizeof *places);
    size_t whole = 0;
    for (uint32_t i = 0; i < size; i++) {
        counts[i] = i % 3;
        places[i] = whole;
        whole += counts[i];
    }
    uint32_t *given = (uint32_t *)calloc(3, sizeof *given), *taken = (uint32_t *)calloc(whole + 1, sizeof *taken);
    for (uint32_t i = 0; i < rank % 3; i++) given[i] = rank;
    CHECK(unisono_all_gather_varcount(world, given, rank % 3, UNISONO_UINT32, taken, counts, places, UNISONO_UINT32));
    for (uint32_t i = 0; i < size; i++)
        for (size_t j = 0; j < counts[i]; j++) EXPECT(taken[places[i] + j] == i);

    /* A communicator of the even ranks and one of the odd. */
    unisono_communicator half;
    CHECK(unisono_split(world, rank % 2, 0, &half));
    uint32_t members;
    CHECK(unisono_size(half, &members));
    EXPECT(members == (size + 1 - rank % 2) / 2);
    CHECK(unisono_communicator_free(half));

    /* A communicator of the ranks of each cache; all of them are in a node. */
    unisono_communicator node, cache;
    uint32_t neighbours;
    CHECK(unisono_split_by_unit(world, UNISONO_UNIT_NODE, &node));
    CHECK(unisono_size(node, &neighbours));
    CHECK(unisono_split_by_unit(node, UNISONO_UNIT_CACHE, &cache));
    CHECK(unisono_size(cache, &members));
    EXPECT(members <= neighbours && neighbours <= size);
    EXPECT(unisono_split_by_unit(world, UNISONO_UNIT_RAIL + 1, &node) == UNISONO_ERROR_ARGUMENT);
    CHECK(unisono_communicator_free(cache));
    CHECK(unisono_communicator_free(node));

    /* What can be checked is checked. */
    EXPECT(unisono_send(world, NULL, 1, UNISONO_INT32, right, 0) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_send(world, &token, 1, UNISONO_INT32, size, 0) == UNISONO_ERROR_RANK && unisono_error_rank() == size);
    EXPECT(unisono_send(half, &token, 1, UNISONO_INT32, 0, 0) == UNISONO_ERROR_HANDLE);
    EXPECT(unisono_send(world, &token, SIZE_MAX, UNISONO_INT64, right, 0) == UNISONO_ERROR_DATATYPE);
    EXPECT(unisono_rank(world, NULL) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_all_reduce(world, &rank, &size, 1, UNISONO_BYTE, UNISONO_SUM) == UNISONO_ERROR_OPERATION);
    EXPECT(unisono_wait(&scan, NULL) == UNISONO_OK);
    requests[0] = 7;
    EXPECT(unisono_wait(&requests[0], NULL) == UNISONO_ERROR_HANDLE);
    EXPECT(strlen(unisono_error_text()) > 0);

    free(all);
    free(counts);
    free(places);
    free(given);
    free(taken);
    CHECK(unisono_operation_free(operation));
    CHECK(unisono_datatype_free(triple));
    CHECK(unisono_datatype_free(column));
    CHECK(unisono_datatype_free(wide));
    EXPECT(unisono_datatype_free(wide) == UNISONO_ERROR_HANDLE);
    CHECK(unisono_finish(world));
    return 0;
}
