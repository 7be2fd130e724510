/* One-sided operations of an MPI, as `unisono bench one-sided` measures ours: rank 0 accesses memory of rank 1,
 * which waits in a barrier meanwhile. Medians over batches.
 *
 *   one_sided get|put|fetch_and_op BYTES   prints nanoseconds of an operation that has completed at its target
 *   one_sided stream BYTES                 prints bytes per second of puts, 64 before a flush
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seconds until a rank whose launcher was killed ends. */
enum { LIMIT = 90 };

enum { BATCHES = 51, BATCH = 100, LONG_BATCH = 10, LONG = 1 << 16, OUTSTANDING = 64, COUNTER = 8 };

/* Bytes of all puts of a stream, at most; but one batch at least. */
static const double STREAM_BYTES = 2e9;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* An operation of rank 0 on rank 1. */
static void start(const char *what, char *data, int bytes, MPI_Win window)
{
    static long long one = 1, before;
    if (strcmp(what, "get") == 0)
        MPI_Get(data, bytes, MPI_BYTE, 1, COUNTER, bytes, MPI_BYTE, window);
    else if (strcmp(what, "fetch_and_op") == 0)
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 1, 0, MPI_SUM, window);
    else
        MPI_Put(data, bytes, MPI_BYTE, 1, COUNTER, bytes, MPI_BYTE, window);
}

int main(int count, char **arguments)
{
    int rank, size;
    alarm(LIMIT);
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count != 3 || size != 2) {
        fprintf(stderr, "two ranks: one_sided get|put|fetch_and_op|stream BYTES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const char *what = arguments[1];
    int bytes = atoi(arguments[2]), streams = strcmp(what, "stream") == 0;
    int flushes = streams ? 1 : bytes < LONG ? BATCH : LONG_BATCH, each = streams ? OUTSTANDING : 1;
    int batches = streams && STREAM_BYTES / OUTSTANDING / bytes < BATCHES ? (int)(STREAM_BYTES / OUTSTANDING / bytes) + 1 : BATCHES;
    double times[BATCHES];
    char *memory, *data = malloc(bytes);
    MPI_Win window;
    MPI_Win_allocate(COUNTER + bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    memset(memory, 0, COUNTER + bytes);
    memset(data, 7, bytes);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        for (int batch = -1; batch < batches; batch++) {
            double begun = MPI_Wtime();
            for (int flush = 0; flush < flushes; flush++) {
                for (int i = 0; i < each; i++)
                    start(what, data, bytes, window);
                MPI_Win_flush(1, window);
            }
            if (batch >= 0)
                times[batch] = (MPI_Wtime() - begun) / flushes / each;
        }
        qsort(times, batches, sizeof *times, by_size);
        printf("%.0f\n", streams ? bytes / times[batches / 2] : times[batches / 2] * 1e9);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    free(data);
    MPI_Finalize();
    return 0;
}
