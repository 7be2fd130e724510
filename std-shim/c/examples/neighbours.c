/* Neighbours in a grid and in a graph, blocks with a datatype each, and attributes: every kind of call is made once. */

#include <string.h>

#include "check.h"

/* A value of a duplicate is one more; the context counts the values that exist. */
static bool copy_value(void *value, void *context, void **copied) {
    int *made = (int *)malloc(sizeof *made);
    *made = *(int *)value + 1;
    *copied = made;
    *(int *)context += 1;
    return true;
}

static void delete_value(void *value, void *context) {
    free(value);
    *(int *)context -= 1;
}

static void attributes(unisono_communicator world) {
    static int count = 0;
    unisono_attribute_key key, plain;
    CHECK(unisono_attribute_key_create(copy_value, delete_value, &count, &key));
    CHECK(unisono_attribute_key_create(NULL, NULL, NULL, &plain));
    for (int i = 0; i < 2; i++) {
        int *value = (int *)malloc(sizeof *value);
        *value = 7;
        count += 1;
        CHECK(unisono_set_attribute(world, key, value));
    }
    CHECK(unisono_set_attribute(world, plain, &count));
    EXPECT(count == 1);
    unisono_communicator copy;
    CHECK(unisono_duplicate(world, &copy));
    EXPECT(count == 2);
    void *value;
    bool found;
    CHECK(unisono_get_attribute(copy, key, &value, &found));
    EXPECT(found && *(int *)value == 8);
    CHECK(unisono_get_attribute(copy, plain, &value, &found));
    EXPECT(!found && value == NULL);
    CHECK(unisono_get_attribute(world, plain, &value, &found));
    EXPECT(found && value == &count);
    CHECK(unisono_communicator_free(copy));
    EXPECT(count == 1);
    CHECK(unisono_remove_attribute(world, key));
    CHECK(unisono_remove_attribute(world, key));
    EXPECT(count == 0);
    CHECK(unisono_attribute_key_free(key));
    EXPECT(unisono_set_attribute(world, key, NULL) == UNISONO_ERROR_HANDLE);
    CHECK(unisono_attribute_key_free(plain));
}

int main(void) {
    unisono_communicator world, grid, ring, none;
    CHECK(unisono_join(NULL, &world));
    uint32_t rank, size;
    CHECK(unisono_rank(world, &rank));
    CHECK(unisono_size(world, &size));

    /* A grid of two dimensions, the second periodic. */
    uint32_t lengths[2], coordinates[2];
    bool periodic[2] = {false, true};
    CHECK(unisono_balanced_grid(size, 2, lengths));
    EXPECT(lengths[0] * lengths[1] == size && lengths[0] >= lengths[1]);
    CHECK(unisono_cartesian(world, 2, lengths, periodic, &grid));
    CHECK(unisono_coordinates(grid, rank, coordinates));
    EXPECT(coordinates[0] * lengths[1] + coordinates[1] == rank);
    int64_t place[2] = {coordinates[0], (int64_t)coordinates[1] + lengths[1]}, found, sources[4], destinations[4];
    CHECK(unisono_rank_at(grid, 2, place, &found));
    EXPECT(found == rank);
    place[0] = -1;
    CHECK(unisono_rank_at(grid, 2, place, &found));
    EXPECT(found == -1);
    int64_t source, destination;
    CHECK(unisono_shift(grid, 0, 1, &source, &destination));
    EXPECT((source == -1) == (coordinates[0] == 0) && (destination == -1) == (coordinates[0] + 1 == lengths[0]));
    size_t receives, sends;
    CHECK(unisono_neighbour_counts(grid, &receives, &sends));
    EXPECT(receives == 4 && sends == 4);
    CHECK(unisono_neighbours(grid, sources, destinations));
    EXPECT(sources[0] == source && destinations[1] == destination);

    /* Every rank gets the numbers of its neighbours, in three forms. */
    uint32_t numbers[4];
    for (int form = 0; form < 3; form++) {
        memset(numbers, 0xff, sizeof numbers);
        unisono_request request;
        if (form == 0) {
            CHECK(unisono_neighbour_all_gather(grid, &rank, 1, UNISONO_UINT32, numbers, 4, UNISONO_UINT32));
        } else if (form == 1) {
            CHECK(unisono_immediate_neighbour_all_gather(grid, &rank, 1, UNISONO_UINT32, numbers, 4, UNISONO_UINT32,
                                                         &request));
            CHECK(unisono_wait(&request, NULL));
        } else {
            CHECK(unisono_persistent_neighbour_all_gather(grid, &rank, 1, UNISONO_UINT32, numbers, 4, UNISONO_UINT32,
                                                          &request));
            CHECK(unisono_start(request));
            CHECK(unisono_wait(&request, NULL));
            CHECK(unisono_request_free(&request));
        }
        for (int i = 0; i < 4; i++) EXPECT(sources[i] == -1 ? numbers[i] == UINT32_MAX : numbers[i] == sources[i]);
    }

    /* A ring as a graph: to the right, and from the left. */
    uint32_t right = (rank + 1) % size, left = (rank + size - 1) % size;
    CHECK(unisono_graph(world, 1, &left, 1, &right, &ring));
    uint64_t sent = rank * 10, received = 0;
    CHECK(unisono_neighbour_all_to_all(ring, &sent, 1, UNISONO_UINT64, &received, 1, UNISONO_UINT64));
    EXPECT(received == left * 10);
    unisono_request request;
    received = 0;
    CHECK(unisono_immediate_neighbour_all_to_all(ring, &sent, 1, UNISONO_UINT64, &received, 1, UNISONO_UINT64,
                                                 &request));
    CHECK(unisono_wait(&request, NULL));
    EXPECT(received == left * 10);
    CHECK(unisono_persistent_neighbour_all_to_all(ring, &sent, 1, UNISONO_UINT64, &received, 1, UNISONO_UINT64,
                                                  &request));
    for (uint64_t round = 0; round < 3; round++) {
        sent = rank * 10 + round;
        CHECK(unisono_start(request));
        CHECK(unisono_wait(&request, NULL));
        EXPECT(received == left * 10 + round);
    }
    CHECK(unisono_request_free(&request));

    /* A column to the right, into a row; the offset of the column counts from an element in the middle. */
    double matrix[4][4], row[6] = {-1, -1, -1, -1, -1, -1};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) matrix[i][j] = rank * 100 + i * 10 + j;
    unisono_datatype column;
    CHECK(unisono_datatype_vector(4, 1, 4, UNISONO_DOUBLE, &column));
    size_t one = 1, four = 4;
    ptrdiff_t last = 3 * 8 - 16 * 4, second = 8;
    unisono_datatype number = UNISONO_DOUBLE;
    for (int form = 0; form < 3; form++) {
        row[1] = 0;
        void *middle = &matrix[2][0];
        if (form == 0) {
            CHECK(unisono_neighbour_all_to_all_w(ring, middle, &one, &last, &column, row, &four, &second, &number));
        } else if (form == 1) {
            CHECK(unisono_immediate_neighbour_all_to_all_w(ring, middle, &one, &last, &column, row, &four, &second,
                                                           &number, &request));
            CHECK(unisono_wait(&request, NULL));
        } else {
            CHECK(unisono_persistent_neighbour_all_to_all_w(ring, middle, &one, &last, &column, row, &four, &second,
                                                            &number, &request));
            CHECK(unisono_start(request));
            CHECK(unisono_wait(&request, NULL));
            CHECK(unisono_request_free(&request));
        }
        EXPECT(row[0] == -1 && row[5] == -1);
        for (int i = 0; i < 4; i++) EXPECT(row[1 + i] == left * 100 + i * 10 + 3);
    }

    /* A transpose: element j of rank i to element i of rank j. */
    enum { MOST = 64 };
    EXPECT(size <= MOST);
    uint32_t from[MOST], into[MOST];
    size_t counts[MOST];
    ptrdiff_t offsets[MOST];
    unisono_datatype words[MOST];
    for (uint32_t i = 0; i < size; i++) {
        from[i] = rank * 1000 + i;
        counts[i] = 1, offsets[i] = i * 4, words[i] = UNISONO_UINT32;
    }
    for (int form = 0; form < 3; form++) {
        memset(into, 0, sizeof into);
        if (form == 0) {
            CHECK(unisono_all_to_all_w(world, from, counts, offsets, words, into, counts, offsets, words));
        } else if (form == 1) {
            CHECK(unisono_immediate_all_to_all_w(world, from, counts, offsets, words, into, counts, offsets, words,
                                                 &request));
            CHECK(unisono_wait(&request, NULL));
        } else {
            CHECK(unisono_persistent_all_to_all_w(world, from, counts, offsets, words, into, counts, offsets, words,
                                                  &request));
            CHECK(unisono_start(request));
            CHECK(unisono_wait(&request, NULL));
            CHECK(unisono_request_free(&request));
        }
        for (uint32_t i = 0; i < size; i++) EXPECT(into[i] == i * 1000 + rank);
    }

    /* What is wrong is an error, and harms nothing. */
    EXPECT(unisono_neighbour_all_gather(world, &rank, 1, UNISONO_UINT32, numbers, 4, UNISONO_UINT32) ==
           UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_neighbour_all_gather(grid, &rank, 1, UNISONO_UINT32, numbers, 3, UNISONO_UINT32) ==
           UNISONO_ERROR_LENGTH);
    EXPECT(unisono_neighbour_all_to_all(ring, matrix, 1, column, row, 4, UNISONO_DOUBLE) == UNISONO_ERROR_DATATYPE);
    EXPECT(unisono_neighbour_all_to_all_w(ring, NULL, &one, &last, &column, row, &four, &second, &number) ==
           UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_all_to_all_w(world, from, NULL, offsets, words, into, counts, offsets, words) ==
           UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_coordinates(world, rank, coordinates) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_coordinates(grid, size, coordinates) == UNISONO_ERROR_RANK);
    EXPECT(unisono_balanced_grid(0, 2, lengths) == UNISONO_ERROR_ARGUMENT);
    uint32_t large[2] = {size, 2};
    EXPECT(unisono_cartesian(world, 2, large, periodic, &none) == UNISONO_ERROR_ARGUMENT);
    EXPECT(unisono_graph(world, 1, &size, 0, NULL, &none) == UNISONO_ERROR_RANK);

    attributes(world);

    CHECK(unisono_datatype_free(column));
    CHECK(unisono_communicator_free(ring));
    CHECK(unisono_communicator_free(grid));
    CHECK(unisono_finish(world));
    if (rank == 0) printf("neighbours of %u ranks\n", size);
    return 0;
}
