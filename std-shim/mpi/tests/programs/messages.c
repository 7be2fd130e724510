/* Messages around a ring: all modes of sending, requests, probes, cancellation, truncation. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int right = (rank + 1) % size, left = (rank + size - 1) % size, value, flag, count;
    MPI_Status status;
    MPI_Request requests[4];

    /* Every mode, received with wildcards. */
    char room[4096];
    MPI_Buffer_attach(room, sizeof room);
    for (int mode = 0; mode < 4; mode++) {
        int own = 100 * mode + rank, got = -1;
        MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        if (mode == 0) MPI_Isend(&own, 1, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]);
        if (mode == 1) MPI_Issend(&own, 1, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]);
        if (mode == 2) MPI_Ibsend(&own, 1, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]);
        if (mode == 3) MPI_Irsend(&own, 1, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]);
        MPI_Status both[2];
        CHECK(MPI_Waitall(2, requests, both) == MPI_SUCCESS);
        CHECK(got == 100 * mode + left && both[0].MPI_SOURCE == left && both[0].MPI_TAG == 5);
        CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
        MPI_Get_count(&both[0], MPI_INT, &count);
        CHECK(count == 1);
    }
    void *detached;
    MPI_Buffer_detach(&detached, &count);
    CHECK(detached == room && count == (int)sizeof room);

    /* A long message, exchanged in place. */
    int n = 300000, *data = malloc(n * sizeof *data);
    for (int i = 0; i < n; i++) data[i] = rank * n + i;
    MPI_Sendrecv_replace(data, n, MPI_INT, right, 1, left, 1, MPI_COMM_WORLD, &status);
    for (int i = 0; i < n; i++) CHECK(data[i] == left * n + i);
    free(data);

    /* Persistent requests, three times. */
    int out, in;
    MPI_Send_init(&out, 1, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 3; round++) {
        out = 10 * rank + round;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == 10 * left + round && requests[0] != MPI_REQUEST_NULL);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);

    /* Probes: one that looks, and one that takes the message. */
    MPI_Send(&rank, 1, MPI_INT, right, 3, MPI_COMM_WORLD);
    MPI_Probe(left, 3, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == left);
    MPI_Message message;
    MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &message, &status);
    MPI_Iprobe(left, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    CHECK(value == left && message == MPI_MESSAGE_NULL);

    /* A receive that matches nothing is cancelled. */
    MPI_Irecv(&value, 1, MPI_INT, left, 99, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);

    /* Errors come back where the program wants them. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int class, code = MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_RANK);
    CHECK(MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_ERR_COUNT);
    CHECK(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD) == MPI_ERR_TYPE);
    CHECK(MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_WORLD) == MPI_ERR_TAG);
    CHECK(MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_ERR_BUFFER);
    int two[2] = {1, 2};
    MPI_Isend(two, 2, MPI_INT, right, 4, MPI_COMM_WORLD, &requests[0]);
    CHECK(MPI_Recv(&value, 1, MPI_INT, left, 4, MPI_COMM_WORLD, &status) == MPI_ERR_TRUNCATE);
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);

    /* Nobody. */
    CHECK(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);

    /* Any, some. */
    int got[3];
    for (int i = 0; i < 3; i++) MPI_Irecv(&got[i], 1, MPI_INT, left, 20 + i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 2; i >= 0; i--) MPI_Send(&i, 1, MPI_INT, right, 20 + i, MPI_COMM_WORLD);
    int seen = 0, index, indices[3];
    MPI_Waitany(3, requests, &index, &status);
    CHECK(status.MPI_TAG == 20 + index && requests[index] == MPI_REQUEST_NULL);
    for (seen = 1; seen < 3; seen += count) MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE);
    MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE);
    CHECK(count == MPI_UNDEFINED && got[0] == 0 && got[1] == 1 && got[2] == 2);
    return end();
}
