/* Jacobi iterations for the heat on a square plate, whose columns are divided among the ranks: the halo columns are
 * vectors in a matrix of rows. */

#include <math.h>

#include "check.h"

/* With an argument: a plate of that many rows and columns. */
int main(int count, char **arguments) {
    size_t rows = count > 1 ? (size_t)atol(arguments[1]) : 48;
    unisono_communicator world;
    CHECK(unisono_join(NULL, &world));
    uint32_t rank, size;
    CHECK(unisono_rank(world, &rank));
    CHECK(unisono_size(world, &size));

    /* Own columns, with a halo column on each side. */
    size_t own = rows / size + (rank < rows % size), width = own + 2;
    double *plate = (double *)calloc(rows * width, sizeof *plate), *next = (double *)calloc(rows * width, sizeof *next);
    for (size_t j = 0; j < width; j++) plate[j] = next[j] = 100.0; /* the upper edge is hot */
    unisono_datatype column;
    CHECK(unisono_datatype_vector(rows, 1, (ptrdiff_t)width, UNISONO_DOUBLE, &column));

    double change = 1;
    int rounds = 0;
    for (; change > 1e-3 && rounds < 5000; rounds++) {
        unisono_request requests[4];
        size_t count = 0;
        if (rank > 0) {
            CHECK(unisono_immediate_receive(world, plate, 1, column, rank - 1, 0, &requests[count++]));
            CHECK(unisono_immediate_send(world, plate + 1, 1, column, rank - 1, 1, &requests[count++]));
        }
        if (rank + 1 < size) {
            CHECK(unisono_immediate_receive(world, plate + own + 1, 1, column, rank + 1, 1, &requests[count++]));
            CHECK(unisono_immediate_send(world, plate + own, 1, column, rank + 1, 0, &requests[count++]));
        }
        CHECK(unisono_wait_all(count, requests, NULL, NULL));
        double largest = 0;
        for (size_t i = 1; i + 1 < rows; i++) {
            for (size_t j = 1; j <= own; j++) {
                /* The left and right edges of the plate stay cold. */
                if ((rank == 0 && j == 1) || (rank + 1 == size && j == own)) continue;
                const double *at = plate + i * width + j;
                double value = (at[-1] + at[1] + at[-(ptrdiff_t)width] + at[width]) / 4;
                largest = fmax(largest, fabs(value - *at));
                next[i * width + j] = value;
            }
        }
        double *swap = plate;
        plate = next;
        next = swap;
        CHECK(unisono_all_reduce(world, &largest, &change, 1, UNISONO_DOUBLE, UNISONO_MAX));
    }

    double heat = 0, total;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 1; j <= own; j++) heat += plate[i * width + j];
    unisono_operation sum;
    CHECK(unisono_operation_reproducible(UNISONO_SUM, &sum));
    CHECK(unisono_all_reduce(world, &heat, &total, 1, UNISONO_DOUBLE, sum));
    CHECK(unisono_operation_free(sum));
    if (rank == 0) printf("at rest after %d rounds: mean temperature %.3f\n", rounds, total / (rows * rows));
    EXPECT(change <= 1e-3);
    EXPECT(fabs(total / (rows * rows) - 25.0) < 2.0);
    free(plate);
    free(next);
    CHECK(unisono_datatype_free(column));
    CHECK(unisono_finish(world));
    return 0;
}
