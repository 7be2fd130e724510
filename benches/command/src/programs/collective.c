/* What an MPI measures of its collectives, as `unisono bench barrier` and `unisono bench collective` do.
 *
 *   collective [--unchanged] NAME BYTES...   prints a line "BYTES NANOSECONDS" for each size
 *
 * NAME and BYTES are unisono's: bytes of a rank, of all_to_all of a pair, of reductions the vector (of doubles, summed) or
 * a rank's part of it. A barrier, whose BYTES are 0, is timed in batches: the median one counts. Any other collective is
 * timed call by call: the mean over the ranks of each one's median.
 *
 * Before each call every rank writes its whole input anew: a program communicates what it has just computed, and data
 * that nobody writes would be found in the readers' caches. A barrier follows, so that neither is timed. With --unchanged
 * the input stays as it is, as in OSU's benchmarks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UP = 3, LEAST = 5, MOST = 1000 };

/* Seconds of timed calls per size, and until a rank whose launcher was killed ends. */
static const double TIME = 0.2;
enum { LIMIT = 90 };

static int rank, ranks, unchanged;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int count)
{
    qsort(times, count, sizeof *times, by_size);
    return times[count / 2];
}

/* Number of calls that fill the time if one takes `each` seconds; rank 0 broadcasts it. */
static int calls(double each)
{
    double fit = TIME / each;
    int count = fit < LEAST ? LEAST : fit > MOST ? MOST : (int)fit;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

static double batch(int barriers)
{
    double start = MPI_Wtime();
    for (int i = 0; i < barriers; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / barriers;
}

static double barrier(void)
{
    int barriers = ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 100 : 1000;
    /* The first batch also waits for late ranks. */
    batch(barriers);
    int count = calls(batch(barriers) * barriers);
    double times[MOST];
    for (int i = 0; i < count; i++)
        times[i] = batch(barriers);
    return median(times, count);
}

static void broadcast(double *in, double *out, int bytes)
{
    MPI_Bcast(rank == 0 ? in : out, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void gather(double *in, double *out, int bytes)
{
    MPI_Gather(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void scatter(double *in, double *out, int bytes)
{
    MPI_Scatter(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void all_gather(double *in, double *out, int bytes)
{
    MPI_Allgather(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void all_to_all(double *in, double *out, int bytes)
{
    MPI_Alltoall(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void reduce(double *in, double *out, int bytes)
{
    MPI_Reduce(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void all_reduce(double *in, double *out, int bytes)
{
    MPI_Allreduce(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_scatter(double *in, double *out, int bytes)
{
    MPI_Reduce_scatter_block(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void scan(double *in, double *out, int bytes)
{
    MPI_Scan(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void exscan(double *in, double *out, int bytes)
{
    MPI_Exscan(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* A collective, and whose input and output hold a block for each rank: nobody's, the root's or everybody's. */
static const struct collective {
    const char *name;
    void (*call)(double *, double *, int);
    enum { NOBODY, ROOT, EVERYBODY } many_in, many_out;
    int only_root_gives;
} COLLECTIVES[] = {
    { "broadcast", broadcast, NOBODY, NOBODY, 1 },
    { "gather", gather, NOBODY, ROOT, 0 },
    { "scatter", scatter, ROOT, NOBODY, 1 },
    { "all_gather", all_gather, NOBODY, EVERYBODY, 0 },
    { "all_to_all", all_to_all, EVERYBODY, EVERYBODY, 0 },
    { "reduce", reduce, NOBODY, NOBODY, 0 },
    { "all_reduce", all_reduce, NOBODY, NOBODY, 0 },
    { "reduce_scatter", reduce_scatter, EVERYBODY, NOBODY, 0 },
    { "scan", scan, NOBODY, NOBODY, 0 },
    { "exscan", exscan, NOBODY, NOBODY, 0 },
};

static size_t words(int who, int bytes)
{
    size_t blocks = who == EVERYBODY || (who == ROOT && rank == 0) ? ranks : 1;
    return blocks * (((size_t)bytes + 7) / 8);
}

static double timed(const struct collective *it, double *in, size_t given, double *out, int bytes, int number)
{
    for (size_t i = 0; i < given; i++)
        in[i] = (double)(number + (int)i);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    it->call(in, out, bytes);
    return MPI_Wtime() - start;
}

static double collective(const struct collective *it, int bytes)
{
    size_t given = unchanged || (it->only_root_gives && rank != 0) ? 0 : words(it->many_in, bytes);
    double *in = calloc(words(it->many_in, bytes) + 1, 8), *out = calloc(words(it->many_out, bytes) + 1, 8);
    double times[MOST], start = MPI_Wtime(), mine, sum;
    for (int i = 0; i < WARM_UP; i++)
        timed(it, in, given, out, bytes, i);
    int count = calls((MPI_Wtime() - start) / WARM_UP);
    for (int i = 0; i < count; i++)
        times[i] = timed(it, in, given, out, bytes, i);
    mine = median(times, count);
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    free(in);
    free(out);
    return sum / ranks;
}

static double measure(const char *name, int bytes)
{
    if (strcmp(name, "barrier") == 0)
        return barrier();
    for (size_t i = 0; i < sizeof COLLECTIVES / sizeof *COLLECTIVES; i++)
        if (strcmp(name, COLLECTIVES[i].name) == 0)
            return collective(&COLLECTIVES[i], bytes);
    fprintf(stderr, "%s is no collective\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return 0;
}

int main(int count, char **arguments)
{
    alarm(LIMIT);
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unchanged = count > 1 && strcmp(arguments[1], "--unchanged") == 0;
    for (int i = 2 + unchanged; i < count; i++) {
        double seconds = measure(arguments[1 + unchanged], atoi(arguments[i]));
        if (rank == 0) {
            printf("%s %.0f\n", arguments[i], seconds * 1e9);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
