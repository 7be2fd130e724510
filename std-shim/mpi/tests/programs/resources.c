/* Communicators of hardware resources. The job has 2 nodes of 2 sockets of 2 caches of a rank each. */
#include "check.h"

static int size_of(MPI_Comm comm)
{
    int ranks = 0;
    if (comm != MPI_COMM_NULL) MPI_Comm_size(comm, &ranks);
    return ranks;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const struct {
        const char *name;
        int ranks;
    } guided[] = {{"hwloc://Machine", 4}, {"package", 2}, {"hwloc://L3Cache", 1}, {"hwloc://Core", 0}};
    for (size_t i = 0; i < sizeof guided / sizeof *guided; i++) {
        MPI_Info info;
        MPI_Comm made;
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpi_hw_resource_type", guided[i].name);
        /* Rank 0 takes no part in the last but one. */
        int kind = i == 2 && rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_HW_GUIDED;
        MPI_Comm_split_type(MPI_COMM_WORLD, kind, 0, info, &made);
        CHECK(size_of(made) == (kind == MPI_UNDEFINED ? 0 : guided[i].ranks));
        if (made != MPI_COMM_NULL) MPI_Comm_free(&made);
        MPI_Info_free(&info);
    }
    MPI_Comm within = MPI_COMM_WORLD, next;
    const char *divides = "hwloc://Machine";
    for (int expected = 4; expected >= 0; expected /= 2) {
        MPI_Info info;
        char name[64] = "";
        int length = sizeof name, found;
        MPI_Info_create(&info);
        MPI_Comm_split_type(within, MPI_COMM_TYPE_HW_UNGUIDED, -rank, info, &next);
        CHECK(size_of(next) == expected);
        MPI_Info_get_string(info, "mpi_hw_resource_type", &length, name, &found);
        CHECK(found == (expected > 0) && (!found || strcmp(name, divides) == 0));
        divides = expected == 4 ? "hwloc://Package" : "hwloc://L3Cache";
        MPI_Info_free(&info);
        if (within != MPI_COMM_WORLD) MPI_Comm_free(&within);
        within = next;
        if (expected == 0) break;
    }
    return end();
}
