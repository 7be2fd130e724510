/* Cancelled sends: of all modes and lengths, matched ones, probed ones, many at once, and at random. */
#include "check.h"

#define TO (size - 1)

static int cancelled(MPI_Request *request)
{
    MPI_Status status;
    int flag;
    CHECK(MPI_Cancel(request) == MPI_SUCCESS);
    CHECK(MPI_Wait(request, &status) == MPI_SUCCESS);
    MPI_Test_cancelled(&status, &flag);
    return flag;
}

static void start(int mode, const char *data, int n, int to, int tag, MPI_Request *request)
{
    switch (mode) {
    case 0: MPI_Isend(data, n, MPI_CHAR, to, tag, MPI_COMM_WORLD, request); break;
    case 1: MPI_Issend(data, n, MPI_CHAR, to, tag, MPI_COMM_WORLD, request); break;
    case 2: MPI_Ibsend(data, n, MPI_CHAR, to, tag, MPI_COMM_WORLD, request); break;
    case 3: MPI_Irsend(data, n, MPI_CHAR, to, tag, MPI_COMM_WORLD, request); break;
    }
}

/* Nothing that was sent is there. */
static void expect_nothing(void)
{
    int flag;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
}

enum { LONGEST = 1000000, MANY = 1100 };

/* Every mode and length, to another rank and to itself, immediate and persistent. */
static void modes(char *data)
{
    static const int lengths[] = {0, 1, 8, 100, 1000, 10000, LONGEST};
    char *room = malloc(LONGEST + MPI_BSEND_OVERHEAD);
    void *detached;
    int bytes;
    MPI_Request request;
    MPI_Buffer_attach(room, LONGEST + MPI_BSEND_OVERHEAD);
    for (int mode = 0; mode < 4; mode++) {
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (int to = 0; rank == 0 && to < size; to++) {
                start(mode, data, lengths[i], to, 1, &request);
                CHECK(cancelled(&request) && request == MPI_REQUEST_NULL);
            }
            if (rank == 0) {
                MPI_Send_init(data, lengths[i], MPI_CHAR, TO, 1, MPI_COMM_WORLD, &request);
                MPI_Start(&request);
                CHECK(cancelled(&request) && request != MPI_REQUEST_NULL);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) {
                MPI_Start(&request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                MPI_Request_free(&request);
            }
            if (rank == TO) MPI_Recv(data, lengths[i], MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect_nothing();
        }
    }
    MPI_Buffer_detach(&detached, &bytes);
    free(room);
}

/* What is matched is not cancelled. */
static void matched(char *data)
{
    static const int lengths[] = {8, 10000, LONGEST};
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    int flag;
    for (int mode = 0; mode < 2; mode++) {
        for (int i = 0; i < 3; i++) {
            /* By a receive. */
            if (rank == TO) MPI_Irecv(data, LONGEST, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) {
                start(mode, data, lengths[i], TO, 2, &request);
                CHECK(!cancelled(&request));
            }
            if (rank == TO) {
                MPI_Wait(&request, &status);
                MPI_Get_count(&status, MPI_CHAR, &flag);
                CHECK(flag == lengths[i]);
            }
            expect_nothing();
            /* By a probe that takes the message, but not by one that only looks. */
            if (rank == 0) start(mode, data, lengths[i], TO, 3, &request);
            if (rank == TO) MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) CHECK(MPI_Cancel(&request) == MPI_SUCCESS);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == TO) MPI_Mrecv(data, LONGEST, MPI_CHAR, &message, &status);
            if (rank == 0) {
                MPI_Wait(&request, &status);
                MPI_Test_cancelled(&status, &flag);
                CHECK(!flag);
                start(mode, data, lengths[i], TO, 4, &request);
            }
            if (rank == TO) MPI_Probe(0, 4, MPI_COMM_WORLD, &status);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) CHECK(cancelled(&request));
            expect_nothing();
        }
    }
}

/* A message is cancelled between others of its tag. */
static void between(void)
{
    MPI_Request requests[3];
    int values[3] = {10, 20, 30}, got[2];
    if (rank == 0) {
        for (int i = 0; i < 3; i++) MPI_Isend(&values[i], 1, MPI_INT, TO, 5, MPI_COMM_WORLD, &requests[i]);
        CHECK(cancelled(&requests[1]));
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; rank == TO && i < 2; i++) MPI_Recv(&got[i], 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(rank != TO || (got[0] == 10 && got[1] == 30));
    expect_nothing();
}

/* More than the receiver stores, all cancelled at once and completed by every call; others are freed. */
static void many(char *data)
{
    static MPI_Request requests[MANY], copies[MANY];
    static MPI_Status statuses[MANY];
    static int indices[MANY];
    for (int round = 0; round < 3; round++) {
        int length = round == 1 ? 20000 : 8, flag, done, number;
        if (rank == 0) {
            for (int i = 0; i < MANY; i++) start(round & 1, data, length, TO, i, &requests[i]);
            memcpy(copies, requests, sizeof requests);
            for (int i = MANY - 1; i >= 0; i--) MPI_Cancel(&requests[i]);
            CHECK(!memcmp(copies, requests, sizeof requests));
            MPI_Request_get_status(requests[7], &flag, &statuses[0]);
            switch (round) {
            case 0: MPI_Waitall(MANY, requests, statuses); break;
            case 1:
                for (done = 0; done < MANY; done += number)
                    MPI_Waitsome(MANY, requests, &number, indices, &statuses[done]);
                break;
            case 2:
                for (flag = 0; !flag;) MPI_Testall(MANY, requests, &flag, statuses);
                break;
            }
            for (int i = 0; i < MANY; i++) {
                MPI_Test_cancelled(&statuses[i], &flag);
                CHECK(flag && requests[i] == MPI_REQUEST_NULL);
            }
        }
        expect_nothing();
    }
    if (rank == 0) {
        for (int i = 0; i < 100; i++) {
            start(i & 1, data, i & 2 ? 8 : 20000, TO, i, &requests[0]);
            MPI_Cancel(&requests[0]);
            MPI_Request_free(&requests[0]);
        }
        start(1, data, 8, TO, 0, &requests[0]);
        CHECK(cancelled(&requests[0]));
    }
    expect_nothing();
}

enum { EACH = 400, WORDS = 5000, RANKS = 16 };

/* Receives a message if there is one. */
static void take(int arrived[RANKS][EACH])
{
    static int into[WORDS];
    MPI_Message message;
    MPI_Status status;
    int flag;
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
    if (!flag) return;
    MPI_Mrecv(into, sizeof into, MPI_CHAR, &message, &status);
    arrived[status.MPI_SOURCE][into[0]]++;
}

/* Messages of all ranks to all, some of them cancelled while the others receive what there is. */
static void at_random(void)
{
    static int sent[EACH][WORDS], is_cancelled[EACH], to[EACH], all[RANKS * EACH], arrived[RANKS][EACH];
    static MPI_Request requests[EACH], barrier;
    static MPI_Status statuses[EACH];
    static const int lengths[] = {1, 2, 50, WORDS};
    unsigned seed = 12345u + (unsigned)rank;
    int flag = 0;
    CHECK(size <= RANKS);
    for (int next = 0; next < EACH; next++) {
        seed = seed * 1103515245u + 12345u;
        unsigned random = seed >> 8;
        sent[next][0] = next;
        to[next] = (int)(random / 4 % (unsigned)size);
        start((int)(random / 64 & 1), (char *)sent[next], lengths[random % 4] * (int)sizeof(int), to[next],
              (int)(random / 128 % 3), &requests[next]);
        int which = (int)(random / 1024 % (unsigned)(next + 1));
        if (random / 512 & 1) MPI_Cancel(&requests[which]);
        if (random & 4) take(arrived);
    }
    for (flag = 0; !flag;) {
        MPI_Testall(EACH, requests, &flag, statuses);
        take(arrived);
    }
    for (int i = 0; i < EACH; i++) {
        MPI_Test_cancelled(&statuses[i], &is_cancelled[i]);
        if (is_cancelled[i]) to[i] = -1;
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    for (flag = 0; !flag;) {
        MPI_Test(&barrier, &flag, MPI_STATUS_IGNORE);
        take(arrived);
    }
    MPI_Allgather(to, EACH, MPI_INT, all, EACH, MPI_INT, MPI_COMM_WORLD);
    int number = 0;
    for (int i = 0; i < size * EACH; i++) {
        while (all[i] == rank && !arrived[i / EACH][i % EACH]) take(arrived);
        CHECK(arrived[i / EACH][i % EACH] == (all[i] == rank));
        number += all[i] < 0;
    }
    CHECK(number > 0 && number < size * EACH / 2);
    expect_nothing();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    char *data = malloc(LONGEST);
    memset(data, 1, LONGEST);
    modes(data);
    matched(data);
    between();
    many(data);
    at_random();
    free(data);
    return end();
}
