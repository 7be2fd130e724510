/* What an MPI measures of itself, as `unisono bench` does: half the median of timed round trips, and a stream in four
 * windows of messages that slide, each acknowledged when all of it has arrived.
 *
 *   exchange latency BYTES     prints nanoseconds
 *   exchange bandwidth BYTES   prints bytes per second
 *   exchange same BYTES        the same with one buffer for all messages of a rank
 *   exchange rate BYTES        prints messages per second; windows of up to 128 messages
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seconds until a rank whose launcher was killed ends. */
enum { LIMIT = 90 };

enum { ROUNDS = 10000, LONG_ROUNDS = 1000, LONG = 1 << 16, WARM_UP = 100, WINDOWS = 4, WINDOW = 16, MOST = 128, DATA = 6, ARRIVED = 8 };

/* Bytes of all timed windows, and number of windows before them. */
static const double STREAM_BYTES = 256e6;
enum { EARLIER = WINDOWS };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void latency(int rank, int bytes)
{
    char *ball = calloc(bytes + 1, 1);
    static double times[ROUNDS];
    int rounds = bytes < LONG ? ROUNDS : LONG_ROUNDS;
    for (int round = -WARM_UP; round < rounds; round++) {
        if (rank == 0) {
            double start = MPI_Wtime();
            MPI_Send(ball, bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD);
            MPI_Recv(ball, bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (round >= 0)
                times[round] = MPI_Wtime() - start;
        } else {
            MPI_Recv(ball, bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(ball, bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) {
        qsort(times, rounds, sizeof *times, by_size);
        printf("%.0f\n", times[rounds / 2] / 2 * 1e9);
    }
    free(ball);
}

/* Bytes of each message, and from one buffer to the next. */
static void stream(int rank, int bytes, int stride, int window, double stream_bytes, int counts_bytes)
{
    char *data = malloc((size_t)bytes * window * WINDOWS + 1), mark[WINDOWS];
    MPI_Request requests[WINDOWS][MOST], arrived[WINDOWS];
    long all = EARLIER + (long)(stream_bytes / (bytes ? bytes : 1) / window) + 1;
    double start = 0;
    memset(data, 7, (size_t)bytes * window * WINDOWS);
    if (rank == 1) {
        for (long w = -WINDOWS; w < all; w++) {
            int slot = (w + WINDOWS) % WINDOWS;
            if (w >= 0) {
                MPI_Waitall(window, requests[slot], MPI_STATUSES_IGNORE);
                MPI_Send(mark, 1, MPI_CHAR, 0, ARRIVED, MPI_COMM_WORLD);
            }
            if (w + WINDOWS < all)
                for (int i = 0; i < window; i++)
                    MPI_Irecv(data + (size_t)stride * (slot * window + i), bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD,
                              &requests[slot][i]);
            if (w == -1)
                MPI_Barrier(MPI_COMM_WORLD);
        }
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        for (long w = 0; w < all + WINDOWS; w++) {
            int slot = w % WINDOWS;
            if (w >= WINDOWS) {
                MPI_Waitall(window, requests[slot], MPI_STATUSES_IGNORE);
                MPI_Wait(&arrived[slot], MPI_STATUS_IGNORE);
                if (w - WINDOWS == EARLIER - 1)
                    start = MPI_Wtime();
            }
            if (w < all) {
                MPI_Irecv(&mark[slot], 1, MPI_CHAR, 1, ARRIVED, MPI_COMM_WORLD, &arrived[slot]);
                for (int i = 0; i < window; i++)
                    MPI_Isend(data + (size_t)stride * i, bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &requests[slot][i]);
            }
        }
        printf("%.0f\n", (double)(all - EARLIER) * window * (counts_bytes ? bytes : 1) / (MPI_Wtime() - start));
    }
    free(data);
}

int main(int count, char **arguments)
{
    int rank, size;
    alarm(LIMIT);
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count != 3 || size != 2) {
        fprintf(stderr, "two ranks: exchange latency|bandwidth|same|rate BYTES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (strcmp(arguments[1], "latency") == 0)
        latency(rank, atoi(arguments[2]));
    else if (strcmp(arguments[1], "rate") == 0) {
        int bytes = atoi(arguments[2]), fit = bytes ? (1 << 18) / bytes : MOST;
        int window = fit < WINDOW ? WINDOW : fit > MOST ? MOST : fit;
        /* Windows for a fraction of a second. */
        stream(rank, bytes, bytes, window, bytes < 4096 ? 600.0 * window * bytes : STREAM_BYTES, 0);
    } else {
        int bytes = atoi(arguments[2]);
        stream(rank, bytes, strcmp(arguments[1], "same") == 0 ? 0 : bytes, WINDOW, STREAM_BYTES, 1);
    }
    MPI_Finalize();
    return 0;
}
