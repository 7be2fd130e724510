/* Every collective, against what its definition gives; in place, immediate, persistent; functions of the program. */
#include "check.h"

/* A product of 2x2 matrices, which does not commute. */
static void multiply(void *left, void *right, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        long *a = (long *)left + 4 * i, *b = (long *)right + 4 * i;
        long c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                     a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof c);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Request request;
    int sum = size * (size - 1) / 2;
    for (int n = 1; n <= 20000; n *= 20) {
        int *a = malloc(sizeof(int) * n * size), *b = malloc(sizeof(int) * n * size);
        for (int root = 0; root < size; root++) {
            for (int i = 0; i < n; i++) a[i] = rank == root ? i + root : -1;
            MPI_Bcast(a, n, MPI_INT, root, MPI_COMM_WORLD);
            for (int i = 0; i < n; i++) CHECK(a[i] == i + root);
            for (int i = 0; i < n; i++) a[i] = rank + i;
            MPI_Gather(a, n, MPI_INT, b, n, MPI_INT, root, MPI_COMM_WORLD);
            if (rank == root)
                for (int i = 0; i < n * size; i++) CHECK(b[i] == i / n + i % n);
            MPI_Scatter(b, n, MPI_INT, rank == root ? MPI_IN_PLACE : a, n, MPI_INT, root, MPI_COMM_WORLD);
            for (int i = 0; i < n; i++) CHECK(a[i] == rank + i);
            MPI_Reduce(a, b, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
            if (rank == root)
                for (int i = 0; i < n; i++) CHECK(b[i] == sum + size * i);
            MPI_Reduce(rank == root ? MPI_IN_PLACE : a, a, n, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD);
            if (rank == root)
                for (int i = 0; i < n; i++) CHECK(a[i] == size - 1 + i);
        }
        for (int i = 0; i < n; i++) a[i] = rank + i;
        MPI_Iallreduce(MPI_IN_PLACE, a, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < n; i++) CHECK(a[i] == sum + size * i);
        for (int i = 0; i < n; i++) b[rank * n + i] = rank * i;
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, n, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < n * size; i++) CHECK(b[i] == (i / n) * (i % n));
        for (int i = 0; i < n * size; i++) a[i] = rank * 1000 + i / n;
        MPI_Alltoall(a, n, MPI_INT, b, n, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < n * size; i++) CHECK(b[i] == i / n * 1000 + rank);
        MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, n, MPI_INT, MPI_COMM_WORLD);
        CHECK(memcmp(a, b, sizeof(int) * n * size) == 0);
        for (int i = 0; i < n * size; i++) a[i] = i;
        MPI_Reduce_scatter_block(a, b, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(b[i] == size * (rank * n + i));
        for (int i = 0; i < n; i++) a[i] = rank + i;
        MPI_Scan(a, b, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(b[i] == rank * (rank + 1) / 2 + (rank + 1) * i);
        MPI_Exscan(MPI_IN_PLACE, a, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(a[i] == (rank == 0 ? i : rank * (rank - 1) / 2 + rank * i));
        free(a);
        free(b);
    }

    /* Blocks of lengths of their own: rank i has i + 1 elements. */
    int counts[16], at[16], total = 0, own[16], all[256], back[16];
    for (int i = 0; i < size; total += counts[i], i++) counts[i] = i + 1, at[i] = total + i;
    for (int i = 0; i <= rank; i++) own[i] = 10 * rank + i;
    MPI_Iallgatherv(own, rank + 1, MPI_INT, all, counts, at, MPI_INT, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        for (int j = 0; j <= i; j++) CHECK(all[at[i] + j] == 10 * i + j);
    MPI_Gatherv(own, rank + 1, MPI_INT, all, counts, at, MPI_INT, size - 1, MPI_COMM_WORLD);
    MPI_Scatterv(all, counts, at, MPI_INT, back, rank + 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    for (int i = 0; i <= rank; i++) CHECK(back[i] == own[i]);
    int ones[256];
    for (int i = 0; i < total; i++) ones[i] = i;
    MPI_Reduce_scatter(ones, back, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i <= rank; i++) CHECK(back[i] == size * (rank * (rank + 1) / 2 + i));

    /* Datatypes of their own: every rank sends longs, and receives pairs of them with a gap. */
    MPI_Datatype gapped, types[16], longs[16];
    MPI_Type_vector(2, 1, 2, MPI_LONG, &gapped);
    MPI_Type_commit(&gapped);
    long sent[32], received[64];
    int two[16], one[16], send_at[16], receive_at[16];
    for (int i = 0; i < size; i++) {
        two[i] = 2, one[i] = 1, longs[i] = MPI_LONG, types[i] = gapped;
        send_at[i] = i * 16, receive_at[i] = i * 32;
        sent[2 * i] = 100 * rank + i, sent[2 * i + 1] = -sent[2 * i];
    }
    memset(received, 1, sizeof received);
    long untouched = received[1];
    MPI_Alltoallw(sent, two, send_at, longs, received, one, receive_at, types, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
        CHECK(received[4 * i] == 100 * i + rank && received[4 * i + 2] == -received[4 * i]);
        CHECK(received[4 * i + 1] == untouched);
    }
    MPI_Type_free(&gapped);

    /* A function of the program, in rank order; on a type of its own. */
    MPI_Op product;
    MPI_Datatype matrix;
    MPI_Op_create(multiply, 0, &product);
    MPI_Type_contiguous(4, MPI_LONG, &matrix);
    MPI_Type_commit(&matrix);
    long shear[4] = {1, rank + 1, rank, 1 + rank * (rank + 1)}, expected[4] = {1, 0, 0, 1}, result[4];
    for (int i = 0, n = 1; i < size; i++) {
        long next[4] = {1, i + 1, i, 1 + i * (i + 1)};
        multiply(expected, next, &n, &matrix);
        memcpy(expected, next, sizeof next);
    }
    MPI_Allreduce(shear, result, 1, matrix, product, MPI_COMM_WORLD);
    CHECK(memcmp(result, expected, sizeof expected) == 0);
    MPI_Type_free(&matrix);
    MPI_Op_free(&product);

    /* Values with an index, in a type with gaps. */
    struct { double value; int index; } mine = {rank == size / 2 ? -1.5 : rank, rank}, least;
    MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK(least.value == -1.5 && least.index == size / 2);
    long double wide = rank + 0.5L, widest;
    MPI_Allreduce(&wide, &widest, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(widest == sum + 0.5L * size);

    /* Persistent. */
    int value, copy;
    MPI_Allreduce_init(&value, &copy, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int round = 0; round < 3; round++) {
        value = rank * round;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(copy == sum * round);
    }
    MPI_Request_free(&request);
    return end();
}
