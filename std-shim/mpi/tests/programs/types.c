/* Messages of other types than their receives, in jobs that check types (argument "checked") and in others. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int is_checked = argc > 1 && strcmp(argv[1], "checked") == 0;
    int wanted = is_checked ? MPI_ERR_TYPE : MPI_SUCCESS, peer = 1 - rank, class;
    int value = 7;
    float other = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    /* Blocking, and with requests. */
    for (int how = 0; how < 2; how++) {
        MPI_Request sent;
        MPI_Isend(&value, 1, MPI_INT, peer, how, MPI_COMM_WORLD, &sent);
        int result = MPI_SUCCESS;
        if (how == 0) {
            result = MPI_Recv(&other, 1, MPI_FLOAT, peer, how, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Request received;
            MPI_Irecv(&other, 1, MPI_FLOAT, peer, how, MPI_COMM_WORLD, &received);
            result = MPI_Wait(&received, MPI_STATUS_IGNORE);
        }
        MPI_Error_class(result, &class);
        CHECK(class == wanted);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
    }

    /* Equal types, however they are described, and bytes. */
    int numbers[4] = {1, 2, 3, 4}, got[4];
    MPI_Datatype pairs;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    MPI_Sendrecv(numbers, 1, pairs, peer, 2, got, 2, MPI_INT, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got[0] == 1 && got[1] == 3);
    MPI_Type_free(&pairs);
    MPI_Sendrecv(numbers, 4, MPI_INT, peer, 3, got, 16, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got[3] == 4);
    return end();
}
