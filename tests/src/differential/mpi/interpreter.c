/* Runs a random MPI program, which the differential test generates: the instructions of this rank. Plain MPI 5.0.
 *
 *   interpreter FOLDER     reads FOLDER/RANK.program, writes FOLDER/RANK.results
 *
 * An instruction is a word and numbers. Data are `buffer offset count type`; buffer -1 is MPI_IN_PLACE, -2 none. A
 * call that can be immediate or persistent begins with its timing (0 blocking, 1 immediate, 2 persistent) and the
 * place of its request. `step N` ends a step: its buffers, types and operations are freed.
 *
 * With LARGE all calls are those for large counts. FAULT plants a fault, as if the library had it, which the test must find.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "large.h"
#include "memory.h"

#ifndef FAULT
#define FAULT 0
#endif
enum { SWAPPED_OPERANDS = 1, COUNT_OF_PART, WRITE_PAST_END, PUT_FOR_ACCUMULATE, REVERSED_BLOCKS, STARTED_ONCE };

enum { BUFFERS = 1024, TYPES = 2048, DERIVED = 32, COMMUNICATORS = 64, REQUESTS = 512, OPERATIONS = 20, LIMIT = 120 };

static const MPI_Op OPERATIONS_OF_MPI[] = {
    MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_MINLOC,
    MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP,
};
enum { MULTIPLY = 14, ADD };

struct request { MPI_Request handle; int receives, buffer; MPI_Datatype type; };
/* Data of a call. */
struct data { void *at; int count; MPI_Datatype type; int buffer; };
/* Blocks of a call: one type, or one for each block. */
struct blocks { void *at; COUNT *counts, *displacements; MPI_Datatype type, *types; };

static int rank;
static long step;
static char *text;
static FILE *results;
static struct buffer buffers[BUFFERS];
static MPI_Datatype types[TYPES];
static MPI_Comm communicators[COMMUNICATORS];
static struct request requests[REQUESTS];
static MPI_Op operations[OPERATIONS];
static MPI_Win window;
static MPI_Group epoch;
/* Arrays of the step, which immediate calls may still read. */
static void *arrays[8192];
static int array_count;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d, step %ld: %s at \"%.60s\"\n", rank, step, what, text);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static long number(void)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text) fail("no number");
    text = end;
    return value;
}

static const char *next_word(void)
{
    static char word[32];
    size_t length = 0;
    while (*text == ' ' || *text == '\n') text++;
    while (*text > ' ' && length < sizeof word - 1) word[length++] = *text++;
    word[length] = 0;
    return word;
}

static void *array(size_t bytes)
{
    void *made = malloc(bytes + 1);
    if (array_count == sizeof arrays / sizeof *arrays || !made) fail("too many arrays");
    return arrays[array_count++] = made;
}

static int *numbers(int count)
{
    int *made = array(count * sizeof *made);
    for (int i = 0; i < count; i++) made[i] = number();
    return made;
}

static COUNT *counts(int count)
{
    COUNT *made = array(count * sizeof *made);
    for (int i = 0; i < count; i++) made[i] = number();
    return made;
}

static MPI_Aint *addresses(int count)
{
    MPI_Aint *made = array(count * sizeof *made);
    for (int i = 0; i < count; i++) made[i] = number();
    return made;
}

static MPI_Datatype type(void)
{
    return types[number()];
}

static MPI_Comm communicator(void)
{
    return communicators[number()];
}

static void *place(int *buffer)
{
    long at = number(), offset = number();
    *buffer = at;
    return at == -1 ? MPI_IN_PLACE : at == -2 ? NULL : buffers[at].data + offset;
}

static struct data data(void)
{
    struct data read;
    read.at = place(&read.buffer);
    read.count = number();
    read.type = type();
    return read;
}

/* `buffer offset blocks counts… displacements… type`; with a type for each block: `… types…`. */
static struct blocks blocks(int has_types)
{
    struct blocks read = {0};
    int buffer;
    read.at = place(&buffer);
    int count = number();
    read.counts = counts(count);
    read.displacements = counts(count);
    if (has_types) {
        read.types = array(count * sizeof *read.types);
        for (int i = 0; i < count; i++) read.types[i] = type();
    } else {
        read.type = type();
    }
    if (FAULT == REVERSED_BLOCKS && count > 1 && read.counts[0] == read.counts[count - 1]) {
        COUNT first = read.displacements[0];
        read.displacements[0] = read.displacements[count - 1];
        read.displacements[count - 1] = first;
    }
    return read;
}

/* Left times right, of two by two numbers. */
static void multiply(void *in, void *inout, COUNT *length, MPI_Datatype *of)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(*of, &lower, &extent);
    /* A type with gaps has one after each number. */
    size_t stride = extent == 16 ? 1 : 2;
    for (COUNT i = 0; i < *length; i++) {
        const uint32_t *l = (uint32_t *)((char *)in + i * extent), *r = (uint32_t *)((char *)inout + i * extent);
        uint32_t *into = (uint32_t *)r, product[4];
        if (FAULT == SWAPPED_OPERANDS) {
            const uint32_t *other = l;
            l = r, r = other;
        }
        for (int row = 0; row < 2; row++)
            for (int column = 0; column < 2; column++)
                product[2 * row + column] =
                    l[2 * row * stride] * r[column * stride] + l[(2 * row + 1) * stride] * r[(2 + column) * stride];
        for (int j = 0; j < 4; j++) into[j * stride] = product[j];
    }
}

static void add(void *in, void *inout, COUNT *length, MPI_Datatype *of)
{
    (void)of;
    for (COUNT i = 0; i < *length; i++) ((uint32_t *)inout)[i] += ((uint32_t *)in)[i];
}

static void received(const MPI_Status *status, MPI_Datatype as, int buffer)
{
    COUNT elements, count;
    MPI_Get_elements(status, as, &elements);
    MPI_Get_count(status, as, &count);
    if (FAULT == COUNT_OF_PART && count == MPI_UNDEFINED) count = 0;
    if (FAULT == WRITE_PAST_END && elements > 0) buffers[buffer].data[buffers[buffer].bytes - 1] ^= 1;
    fprintf(results, "%ld R %d %d %ld %ld %016llx\n", step, status->MPI_SOURCE, status->MPI_TAG, (long)elements, (long)count,
            hash(&buffers[buffer]));
}

/* Waits for requests in one of several ways, then reports receives in the order of the list. */
static void wait_for(void)
{
    int way = number(), count = number(), *list = numbers(count), flag = 0, ended = 0, some, *indices = array(4 * count);
    MPI_Request *handles = array(count * sizeof *handles);
    MPI_Status *statuses = array(count * sizeof *statuses), *found = array(count * sizeof *found);
    for (int i = 0; i < count; i++) handles[i] = requests[list[i]].handle;
    switch (way) {
    case 0: MPI_Waitall(count, handles, statuses); break;
    case 1: while (!flag) MPI_Testall(count, handles, &flag, statuses); break;
    case 2: case 3:
        while (ended < count) {
            if (way == 2) MPI_Waitsome(count, handles, &some, indices, found);
            else MPI_Testsome(count, handles, &some, indices, found);
            if (some == MPI_UNDEFINED) fail("requests end twice");
            for (int i = 0; i < some; i++) statuses[indices[i]] = found[i];
            ended += some;
        }
        break;
    case 4: case 5:
        while (ended < count) {
            MPI_Status one;
            flag = 1;
            if (way == 4) MPI_Waitany(count, handles, &some, &one);
            else MPI_Testany(count, handles, &some, &flag, &one);
            if (flag && some == MPI_UNDEFINED) fail("a request ends twice");
            if (flag) statuses[some] = one, ended++;
        }
        break;
    case 6: for (int i = count; i-- > 0;) MPI_Wait(&handles[i], &statuses[i]); break;
    default: for (int i = 0; i < count; i++) for (flag = 0; !flag;) MPI_Test(&handles[i], &flag, &statuses[i]);
    }
    for (int i = 0; i < count; i++) {
        struct request *it = &requests[list[i]];
        it->handle = handles[i];
        if (it->receives) received(&statuses[i], it->type, it->buffer);
    }
}

static struct request *request_for(int receives, struct data into)
{
    long at = number();
    struct request *it = at < 0 ? NULL : &requests[at];
    if (it) *it = (struct request){MPI_REQUEST_NULL, receives, into.buffer, into.type};
    return it;
}

static const struct data NOTHING;

static void send(void)
{
    static int (*const BLOCKING[])(const void *, COUNT, MPI_Datatype, int, int, MPI_Comm) = {
        MPI_Send, MPI_Ssend, MPI_Bsend, MPI_Rsend,
    };
    static int (*const IMMEDIATE[])(const void *, COUNT, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {
        MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend, MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init,
    };
    int timing = number();
    struct request *request = request_for(0, NOTHING);
    int mode = number();
    struct data it = data();
    int to = number(), tag = number();
    MPI_Comm on = communicator();
    if (timing == 0) BLOCKING[mode](it.at, it.count, it.type, to, tag, on);
    else IMMEDIATE[4 * (timing - 1) + mode](it.at, it.count, it.type, to, tag, on, &request->handle);
}

static void receive(void)
{
    int timing = number(), at = number();
    struct data it = data();
    int from = number(), tag = number();
    MPI_Comm on = communicator();
    MPI_Status status;
    if (timing == 0) {
        MPI_Recv(it.at, it.count, it.type, from, tag, on, &status);
        received(&status, it.type, it.buffer);
        return;
    }
    requests[at] = (struct request){MPI_REQUEST_NULL, 1, it.buffer, it.type};
    (timing == 1 ? MPI_Irecv : MPI_Recv_init)(it.at, it.count, it.type, from, tag, on, &requests[at].handle);
}

/* Receives a message of any source and tag that a probe finds. */
static void probe(void)
{
    int way = number(), flag = 0;
    struct data it = data();
    MPI_Comm on = communicator();
    MPI_Status found, status;
    MPI_Message message;
    COUNT before, after;
    switch (way) {
    case 0: MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, on, &message, &found); break;
    case 1: while (!flag) MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, on, &flag, &message, &found); break;
    case 2: MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, on, &found); break;
    default: while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, on, &flag, &found);
    }
    MPI_Get_elements(&found, it.type, &before);
    if (way == 0) {
        MPI_Mrecv(it.at, it.count, it.type, &message, &status);
    } else if (way == 1) {
        MPI_Request request;
        MPI_Imrecv(it.at, it.count, it.type, &message, &request);
        MPI_Wait(&request, &status);
    } else {
        MPI_Recv(it.at, it.count, it.type, found.MPI_SOURCE, found.MPI_TAG, on, &status);
    }
    MPI_Get_elements(&status, it.type, &after);
    if (before != after || found.MPI_SOURCE != status.MPI_SOURCE || found.MPI_TAG != status.MPI_TAG)
        fail("a probe reports another message");
    received(&status, it.type, it.buffer);
}

static void send_receive(void)
{
    int way = number();
    struct data out = data();
    int to = number(), send_tag = number();
    struct data in = data();
    int from = number(), tag = number();
    MPI_Comm on = communicator();
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (way) {
    case 0: MPI_Sendrecv(out.at, out.count, out.type, to, send_tag, in.at, in.count, in.type, from, tag, on, &status); break;
    case 1: MPI_Isendrecv(out.at, out.count, out.type, to, send_tag, in.at, in.count, in.type, from, tag, on, &request); break;
    case 2: MPI_Sendrecv_replace(in.at, in.count, in.type, to, send_tag, from, tag, on, &status); break;
    default: MPI_Isendrecv_replace(in.at, in.count, in.type, to, send_tag, from, tag, on, &request);
    }
    if (way & 1) MPI_Wait(&request, &status);
    received(&status, in.type, in.buffer);
}

/* A constructor of datatypes. Returns whether the word names one. */
static int construct(const char *word)
{
    MPI_Datatype *into, of;
    COUNT count, *lengths, *starts, length;
    MPI_Aint *displacements;
#define CONSTRUCTOR(name) (strcmp(word, name) == 0 && (into = &types[number()], 1))
    if (CONSTRUCTOR("contiguous")) {
        count = number(), of = type();
        MPI_Type_contiguous(count, of, into);
    } else if (CONSTRUCTOR("vector")) {
        count = number(), length = number();
        COUNT stride = number();
        of = type();
        MPI_Type_vector(count, length, stride, of, into);
    } else if (CONSTRUCTOR("hvector")) {
        count = number(), length = number();
        MPI_Aint stride = number();
        of = type();
        MPI_Type_create_hvector(count, length, stride, of, into);
    } else if (CONSTRUCTOR("indexed")) {
        count = number(), lengths = counts(count), starts = counts(count), of = type();
        MPI_Type_indexed(count, lengths, starts, of, into);
    } else if (CONSTRUCTOR("hindexed")) {
        count = number(), lengths = counts(count), displacements = addresses(count), of = type();
        MPI_Type_create_hindexed(count, lengths, displacements, of, into);
    } else if (CONSTRUCTOR("indexed_block")) {
        count = number(), length = number(), starts = counts(count), of = type();
        MPI_Type_create_indexed_block(count, length, starts, of, into);
    } else if (CONSTRUCTOR("hindexed_block")) {
        count = number(), length = number(), displacements = addresses(count), of = type();
        MPI_Type_create_hindexed_block(count, length, displacements, of, into);
    } else if (CONSTRUCTOR("struct")) {
        count = number(), lengths = counts(count), displacements = addresses(count);
        MPI_Datatype *parts = array(count * sizeof *parts);
        for (int i = 0; i < count; i++) parts[i] = type();
        MPI_Type_create_struct(count, lengths, displacements, parts, into);
    } else if (CONSTRUCTOR("resized")) {
        MPI_Aint lower = number(), extent = number();
        of = type();
        MPI_Type_create_resized(of, lower, extent, into);
    } else if (CONSTRUCTOR("subarray")) {
        count = number();
        COUNT *sizes = counts(count), *parts = counts(count), *from = counts(count), is_c = number();
        of = type();
        MPI_Type_create_subarray(count, sizes, parts, from, is_c ? MPI_ORDER_C : MPI_ORDER_FORTRAN, of, into);
    } else if (CONSTRUCTOR("duplicate")) {
        of = type();
        MPI_Type_dup(of, into);
    } else {
        return 0;
    }
    MPI_Type_commit(into);
    return 1;
}

/* The timing and the request of a collective. */
static int timing;
static MPI_Request *handle;

#define START(name, immediate, ...)                                                     \
    do {                                                                                \
        if (timing == 0) MPI_##name(__VA_ARGS__);                                       \
        else if (timing == 1) MPI_##immediate(__VA_ARGS__, handle);                     \
        else MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, handle);                     \
    } while (0)
#define COLLECTIVE(name) (strcmp(word, name) == 0 && (timing = number(), begin_collective(), 1))

static void begin_collective(void)
{
    struct request *request = request_for(0, NOTHING);
    handle = request ? &request->handle : NULL;
}

static int move(const char *word)
{
    struct data out, in;
    struct blocks many, more;
    MPI_Comm on;
    int root;
    if (COLLECTIVE("barrier")) {
        on = communicator();
        START(Barrier, Ibarrier, on);
    } else if (COLLECTIVE("bcast")) {
        out = data(), root = number(), on = communicator();
        START(Bcast, Ibcast, out.at, out.count, out.type, root, on);
    } else if (COLLECTIVE("gather")) {
        out = data(), in = data(), root = number(), on = communicator();
        START(Gather, Igather, out.at, out.count, out.type, in.at, in.count, in.type, root, on);
    } else if (COLLECTIVE("gatherv")) {
        out = data(), many = blocks(0), root = number(), on = communicator();
        START(Gatherv, Igatherv, out.at, out.count, out.type, many.at, many.counts, many.displacements, many.type, root, on);
    } else if (COLLECTIVE("scatter")) {
        out = data(), in = data(), root = number(), on = communicator();
        START(Scatter, Iscatter, out.at, out.count, out.type, in.at, in.count, in.type, root, on);
    } else if (COLLECTIVE("scatterv")) {
        many = blocks(0), in = data(), root = number(), on = communicator();
        START(Scatterv, Iscatterv, many.at, many.counts, many.displacements, many.type, in.at, in.count, in.type, root, on);
    } else if (COLLECTIVE("allgather")) {
        out = data(), in = data(), on = communicator();
        START(Allgather, Iallgather, out.at, out.count, out.type, in.at, in.count, in.type, on);
    } else if (COLLECTIVE("allgatherv")) {
        out = data(), many = blocks(0), on = communicator();
        START(Allgatherv, Iallgatherv, out.at, out.count, out.type, many.at, many.counts, many.displacements, many.type, on);
    } else if (COLLECTIVE("alltoall")) {
        out = data(), in = data(), on = communicator();
        START(Alltoall, Ialltoall, out.at, out.count, out.type, in.at, in.count, in.type, on);
    } else if (COLLECTIVE("alltoallv")) {
        more = blocks(0), many = blocks(0), on = communicator();
        START(Alltoallv, Ialltoallv, more.at, more.counts, more.displacements, more.type, many.at, many.counts,
              many.displacements, many.type, on);
    } else if (COLLECTIVE("alltoallw")) {
        more = blocks(1), many = blocks(1), on = communicator();
        START(Alltoallw, Ialltoallw, more.at, more.counts, more.displacements, more.types, many.at, many.counts,
              many.displacements, many.types, on);
    } else if (COLLECTIVE("neighbor_allgather")) {
        out = data(), in = data(), on = communicator();
        START(Neighbor_allgather, Ineighbor_allgather, out.at, out.count, out.type, in.at, in.count, in.type, on);
    } else if (COLLECTIVE("neighbor_allgatherv")) {
        out = data(), many = blocks(0), on = communicator();
        START(Neighbor_allgatherv, Ineighbor_allgatherv, out.at, out.count, out.type, many.at, many.counts,
              many.displacements, many.type, on);
    } else if (COLLECTIVE("neighbor_alltoall")) {
        out = data(), in = data(), on = communicator();
        START(Neighbor_alltoall, Ineighbor_alltoall, out.at, out.count, out.type, in.at, in.count, in.type, on);
    } else if (COLLECTIVE("neighbor_alltoallv")) {
        more = blocks(0), many = blocks(0), on = communicator();
        START(Neighbor_alltoallv, Ineighbor_alltoallv, more.at, more.counts, more.displacements, more.type, many.at,
              many.counts, many.displacements, many.type, on);
    } else if (COLLECTIVE("neighbor_alltoallw")) {
        more = blocks(1), many = blocks(1), on = communicator();
        MPI_Aint *from[2];
        /* These displacements are addresses. */
        for (int i = 0; i < 2; i++) {
            int degree = number();
            from[i] = array(degree * sizeof **from);
            for (int j = 0; j < degree; j++) from[i][j] = (i ? many : more).displacements[j];
        }
        START(Neighbor_alltoallw, Ineighbor_alltoallw, more.at, more.counts, from[0], more.types, many.at, many.counts,
              from[1], many.types, on);
    } else {
        return 0;
    }
    return 1;
}

static int reduce(const char *word)
{
    struct data out, in;
    MPI_Op operation;
    MPI_Comm on;
    /* Input and output have one count and type, those of the input. */
#define OPERANDS (out = data(), in = data(), operation = operations[number()])
    if (COLLECTIVE("reduce")) {
        OPERANDS;
        int root = number();
        on = communicator();
        START(Reduce, Ireduce, out.at, in.at, out.count, out.type, operation, root, on);
    } else if (COLLECTIVE("allreduce")) {
        OPERANDS, on = communicator();
        START(Allreduce, Iallreduce, out.at, in.at, out.count, out.type, operation, on);
    } else if (COLLECTIVE("scan")) {
        OPERANDS, on = communicator();
        START(Scan, Iscan, out.at, in.at, out.count, out.type, operation, on);
    } else if (COLLECTIVE("exscan")) {
        OPERANDS, on = communicator();
        START(Exscan, Iexscan, out.at, in.at, out.count, out.type, operation, on);
    } else if (COLLECTIVE("reduce_scatter_block")) {
        OPERANDS, on = communicator();
        START(Reduce_scatter_block, Ireduce_scatter_block, out.at, in.at, in.count, in.type, operation, on);
    } else if (COLLECTIVE("reduce_scatter")) {
        OPERANDS;
        int members = number();
        COUNT *each = counts(members);
        on = communicator();
        START(Reduce_scatter, Ireduce_scatter, out.at, in.at, each, out.type, operation, on);
    } else if (strcmp(word, "reduce_local") == 0) {
        OPERANDS;
        MPI_Reduce_local(out.at, in.at, out.count, out.type, operation);
    } else {
        return 0;
    }
    return 1;
}

static MPI_Group group(MPI_Comm of)
{
    MPI_Group all, part;
    int count = number(), *members = numbers(count);
    MPI_Comm_group(of, &all);
    MPI_Group_incl(all, count, members, &part);
    MPI_Group_free(&all);
    return part;
}

static void print_group(char kind, MPI_Group of)
{
    MPI_Group world;
    int count, own[64], all[64];
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(of, &count);
    for (int i = 0; i < count && i < 64; i++) own[i] = i;
    MPI_Group_translate_ranks(of, count, own, world, all);
    fprintf(results, "%ld %c", step, kind);
    for (int i = 0; i < count; i++) fprintf(results, " %d", all[i]);
    fprintf(results, "\n");
    MPI_Group_free(&world);
    MPI_Group_free(&of);
}

static int connect_ranks(const char *word)
{
    MPI_Comm of, *into, made;
    MPI_Group part;
#define COMMUNICATOR(name) (strcmp(word, name) == 0 && (of = communicator(), into = &communicators[number()], 1))
    if (COMMUNICATOR("split")) {
        int color = number(), key = number();
        MPI_Comm_split(of, color < 0 ? MPI_UNDEFINED : color, key, into);
    } else if (COMMUNICATOR("dup")) {
        MPI_Comm_dup(of, &made);
        *into = made;
    } else if (COMMUNICATOR("idup")) {
        MPI_Request request;
        MPI_Comm_idup(of, &made, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        *into = made;
    } else if (COMMUNICATOR("create")) {
        part = group(of);
        MPI_Comm_create(of, part, into);
        MPI_Group_free(&part);
    } else if (COMMUNICATOR("create_group")) {
        int tag = number();
        part = group(of);
        MPI_Comm_create_group(of, part, tag, into);
        MPI_Group_free(&part);
    } else if (COMMUNICATOR("bridge")) {
        MPI_Comm local = communicator();
        int leader = number(), tag = number();
        MPI_Intercomm_create(local, 0, of, leader, tag, into);
    } else if (COMMUNICATOR("merge")) {
        int is_high = number();
        MPI_Intercomm_merge(of, is_high, into);
    } else if (COMMUNICATOR("cartesian")) {
        int count = number(), *sizes = numbers(count), *periods = numbers(count);
        MPI_Cart_create(of, count, sizes, periods, 0, into);
    } else if (COMMUNICATOR("graph")) {
        int count = number(), *ends = numbers(count), edges = number(), *list = numbers(edges);
        MPI_Graph_create(of, count, ends, list, 0, into);
    } else if (COMMUNICATOR("distributed")) {
        int in = number(), *from = numbers(in), out = number(), *to = numbers(out);
        MPI_Dist_graph_create_adjacent(of, in, from, MPI_UNWEIGHTED, out, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, into);
    } else if (strcmp(word, "members") == 0) {
        int is_inter;
        of = communicator();
        MPI_Comm_group(of, &part);
        print_group('M', part);
        MPI_Comm_test_inter(of, &is_inter);
        if (is_inter) {
            MPI_Comm_remote_group(of, &part);
            print_group('N', part);
        }
    } else if (strcmp(word, "disconnect") == 0) {
        into = &communicators[number()];
        MPI_Comm_free(into);
    } else {
        return 0;
    }
    return 1;
}

static int access_window(const char *word)
{
    struct data own;
    int target, count, at;
    MPI_Aint displacement;
    MPI_Datatype of;
    MPI_Op operation;
    if (strcmp(word, "window") == 0) {
        MPI_Comm on = communicator();
        int is_allocated = number(), buffer = number(), unit = number();
        size_t bytes = number();
        if (is_allocated) {
            void *base;
            MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, on, &base, &window);
            buffers[buffer] = (struct buffer){base, bytes, 1};
        } else {
            MPI_Win_create(buffers[buffer].data, bytes, unit, MPI_INFO_NULL, on, &window);
        }
    } else if (strcmp(word, "fence") == 0) {
        MPI_Win_fence(number(), window);
    } else if (strcmp(word, "lock") == 0) {
        int is_shared = number();
        target = number();
        MPI_Win_lock(is_shared ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, window);
    } else if (strcmp(word, "unlock") == 0) {
        MPI_Win_unlock(number(), window);
    } else if (strcmp(word, "lock_all") == 0) {
        MPI_Win_lock_all(0, window);
    } else if (strcmp(word, "unlock_all") == 0) {
        MPI_Win_unlock_all(window);
    } else if (strcmp(word, "flush") == 0) {
        MPI_Win_flush(number(), window);
    } else if (strcmp(word, "post_start") == 0) {
        MPI_Win_get_group(window, &epoch);
        MPI_Win_post(epoch, 0, window);
        MPI_Win_start(epoch, 0, window);
    } else if (strcmp(word, "complete_wait") == 0) {
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        MPI_Group_free(&epoch);
    } else if (strcmp(word, "close") == 0) {
        MPI_Win_free(&window);
    } else if (strcmp(word, "put") == 0 || strcmp(word, "get") == 0 || strcmp(word, "rput") == 0 || strcmp(word, "rget") == 0) {
        own = data(), target = number(), displacement = number(), count = number(), of = type();
        MPI_Request request = MPI_REQUEST_NULL;
        if (word[0] == 'p') MPI_Put(own.at, own.count, own.type, target, displacement, count, of, window);
        else if (word[0] == 'g') MPI_Get(own.at, own.count, own.type, target, displacement, count, of, window);
        else if (word[1] == 'p') MPI_Rput(own.at, own.count, own.type, target, displacement, count, of, window, &request);
        else MPI_Rget(own.at, own.count, own.type, target, displacement, count, of, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (strcmp(word, "accumulate") == 0) {
        own = data(), target = number(), displacement = number(), operation = operations[number()];
        if (FAULT == PUT_FOR_ACCUMULATE) operation = MPI_REPLACE;
        MPI_Accumulate(own.at, own.count, own.type, target, displacement, own.count, own.type, operation, window);
    } else if (strcmp(word, "get_accumulate") == 0) {
        own = data();
        void *into = place(&at);
        target = number(), displacement = number(), operation = operations[number()];
        MPI_Get_accumulate(own.at, own.count, own.type, into, own.count, own.type, target, displacement, own.count,
                           own.type, operation, window);
    } else if (strcmp(word, "fetch_and_op") == 0) {
        own = data();
        void *into = place(&at);
        target = number(), displacement = number(), operation = operations[number()];
        MPI_Fetch_and_op(own.at, into, own.type, target, displacement, operation, window);
    } else if (strcmp(word, "compare_and_swap") == 0) {
        own = data();
        void *compare = place(&at), *into = place(&at);
        target = number(), displacement = number();
        MPI_Compare_and_swap(own.at, compare, into, own.type, target, displacement, window);
    } else {
        return 0;
    }
    return 1;
}

static void end_step(void)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (buffers[i].data && !buffers[i].is_of_window) free(buffers[i].data);
        buffers[i] = (struct buffer){0};
    }
    for (int i = DERIVED; i < TYPES; i++)
        if (types[i] != MPI_DATATYPE_NULL) MPI_Type_free(&types[i]);
    while (array_count > 0) free(arrays[--array_count]);
    step = number();
    fflush(results);
}

static int use_memory(const char *word)
{
    if (strcmp(word, "buffer") == 0) {
        struct buffer *it = &buffers[number()];
        it->bytes = number();
        if (posix_memalign((void **)&it->data, 64, it->bytes + 1)) fail("no memory");
    } else if (strcmp(word, "fill") == 0) {
        struct buffer *it = &buffers[number()];
        uint64_t seed = number();
        fill(it, seed, number());
    } else if (strcmp(word, "clean") == 0) {
        struct buffer *it = &buffers[number()];
        clean(it, number());
    } else if (strcmp(word, "write") == 0) {
        struct buffer *it = &buffers[number()];
        long at = number(), count = number();
        for (long i = at; i < at + count; i++) it->data[i] = number();
    } else if (strcmp(word, "show") == 0) {
        fprintf(results, "%ld H %016llx\n", step, hash(&buffers[number()]));
    } else if (strcmp(word, "describe") == 0) {
        MPI_Datatype it = type();
        COUNT bytes;
        MPI_Aint lower, extent, true_lower, true_extent;
        MPI_Type_size(it, &bytes);
        MPI_Type_get_extent(it, &lower, &extent);
        MPI_Type_get_true_extent(it, &true_lower, &true_extent);
        fprintf(results, "%ld T %ld %ld %ld %ld %ld\n", step, (long)bytes, (long)lower, (long)extent, (long)true_lower, (long)true_extent);
    } else if (strcmp(word, "pack") == 0) {
        struct data from = data();
        int into = number();
        COUNT position = 0;
        MPI_Pack(from.at, from.count, from.type, buffers[into].data, buffers[into].bytes, &position, MPI_COMM_WORLD);
        fprintf(results, "%ld P %ld\n", step, (long)position);
    } else if (strcmp(word, "unpack") == 0) {
        int from = number();
        COUNT position = 0;
        struct data into = data();
        MPI_Unpack(buffers[from].data, buffers[from].bytes, &position, into.at, into.count, into.type, MPI_COMM_WORLD);
        fprintf(results, "%ld P %ld\n", step, (long)position);
    } else {
        return 0;
    }
    return 1;
}

/* One instruction; returns whether the program goes on. */
static int execute(const char *word)
{
    if (strcmp(word, "end") == 0) return 0;
    if (strcmp(word, "step") == 0) end_step();
    else if (strcmp(word, "send") == 0) send();
    else if (strcmp(word, "receive") == 0) receive();
    else if (strcmp(word, "probe") == 0) probe();
    else if (strcmp(word, "send_receive") == 0) send_receive();
    else if (strcmp(word, "wait") == 0) wait_for();
    else if (strcmp(word, "start") == 0 || strcmp(word, "restart") == 0) {
        int count = number(), *list = numbers(count);
        MPI_Request handles[REQUESTS];
        for (int i = 0; i < count; i++) handles[i] = requests[list[i]].handle;
        if (FAULT == STARTED_ONCE && word[0] == 'r') return 1;
        if (count == 1) MPI_Start(handles);
        else MPI_Startall(count, handles);
        for (int i = 0; i < count; i++) requests[list[i]].handle = handles[i];
    } else if (strcmp(word, "release") == 0) {
        MPI_Request_free(&requests[number()].handle);
    } else if (strcmp(word, "attach") == 0) {
        int bytes = number();
        MPI_Buffer_attach(array(bytes), bytes);
    } else if (strcmp(word, "detach") == 0) {
        void *of;
        COUNT bytes;
        MPI_Buffer_detach(&of, &bytes);
    } else if (!use_memory(word) && !construct(word) && !move(word) && !reduce(word) && !connect_ranks(word) &&
               !access_window(word)) {
        fail(word);
    }
    return 1;
}

int main(int count, char **arguments)
{
    char name[4096];
    alarm(LIMIT);
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count < 2) fail("no folder");
    snprintf(name, sizeof name, "%s/%d.program", arguments[1], rank);
    FILE *program = fopen(name, "rb");
    snprintf(name, sizeof name, "%s/%d.results", arguments[1], rank);
    results = fopen(name, "wb");
    if (!program || !results) fail("no file");
    fseek(program, 0, SEEK_END);
    long bytes = ftell(program);
    rewind(program);
    char *all = text = calloc(bytes + 1, 1);
    if (fread(all, 1, bytes, program) != (size_t)bytes) fail("cannot read");
    fclose(program);
    communicators[0] = MPI_COMM_WORLD;
    for (int i = 0; i < TYPES; i++) types[i] = MPI_DATATYPE_NULL;
    memcpy(types, BASICS, sizeof BASICS);
    memcpy(operations, OPERATIONS_OF_MPI, sizeof OPERATIONS_OF_MPI);
    MPI_Op_create(multiply, 0, &operations[MULTIPLY]);
    MPI_Op_create(add, 1, &operations[ADD]);
    while (execute(next_word())) {
    }
    fprintf(results, "end\n");
    fclose(results);
    MPI_Op_free(&operations[MULTIPLY]);
    MPI_Op_free(&operations[ADD]);
    for (int i = 1; i < COMMUNICATORS; i++)
        if (communicators[i] && communicators[i] != MPI_COMM_NULL) MPI_Comm_free(&communicators[i]);
    free(all);
    return MPI_Finalize();
}
