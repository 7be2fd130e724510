/* Communicators, groups, attributes, intercommunicators, topologies. */
#include "check.h"

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    copies += *(int *)extra;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value;
    deletes += *(int *)extra;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm half, twin, inter, merged, ring, made;
    MPI_Group all, group;
    int key, extra = 1, value = 42, *found, flag, result, number, own;

    /* Attributes go to a duplicate, with the extra argument. */
    MPI_Comm_create_keyval(copy, delete, &key, &extra);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_size(half, &number);
    MPI_Comm_rank(half, &own);
    CHECK(number == (size + 1 - rank % 2) / 2 && own == number - 1 - rank / 2);
    MPI_Comm_set_attr(half, key, &value);
    MPI_Comm_dup(half, &twin);
    MPI_Comm_get_attr(twin, key, &found, &flag);
    CHECK(flag && found == &value && copies == 1);
    MPI_Comm_compare(half, twin, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_free(&twin);
    MPI_Comm_free(&half);
    CHECK(deletes == 2 && half == MPI_COMM_NULL);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &found, &flag);
    CHECK(flag && *found >= 32767);

    /* The processes of a machine, and of ever narrower resources. */
    MPI_Info resource;
    char restricted[6];
    int bytes = sizeof restricted;
    MPI_Get_hw_resource_info(&resource);
    MPI_Info_get_string(resource, "hwloc://Machine", &bytes, restricted, &flag);
    CHECK(flag && strcmp(restricted, "true") == 0);
    MPI_Info_free(&resource);
    MPI_Info_create(&resource);
    MPI_Info_set(resource, "mpi_hw_resource_type", "hwloc://Machine");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, resource, &half);
    MPI_Comm_size(half, &number);
    CHECK(number == size);
    MPI_Info_set(resource, "mpi_hw_resource_type", "hwloc://Core");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, resource, &twin);
    CHECK(twin == MPI_COMM_NULL);
    MPI_Info_free(&resource);
    while (half != MPI_COMM_NULL) {
        int before;
        MPI_Comm_size(half, &before);
        MPI_Comm_split_type(half, MPI_COMM_TYPE_HW_UNGUIDED, -rank, MPI_INFO_NULL, &twin);
        MPI_Comm_free(&half);
        half = twin;
        if (half != MPI_COMM_NULL) {
            MPI_Comm_size(half, &number);
            CHECK(number < before);
        }
    }

    /* A group whose members alone call. */
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    int range[1][3] = {{size - 1, 0, -1}};
    MPI_Group_range_incl(all, 1, range, &group);
    MPI_Group_compare(all, group, &result);
    CHECK(result == (size > 1 ? MPI_SIMILAR : MPI_IDENT));
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 9, &made);
    MPI_Comm_rank(made, &own);
    CHECK(own == size - 1 - rank);
    int sum = -1;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, made);
    CHECK(sum == size * (size - 1) / 2);
    MPI_Comm_free(&made);
    MPI_Group_free(&group);
    MPI_Group_free(&all);

    /* Rank 0 against the others. */
    if (size > 1) {
        MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 7, &inter);
        MPI_Comm_remote_size(inter, &number);
        CHECK(number == (rank > 0 ? 1 : size - 1));
        int data = rank == 0 ? 77 : -1;
        MPI_Bcast(&data, 1, MPI_INT, rank == 0 ? MPI_ROOT : 0, inter);
        CHECK(data == 77);
        int remote_sum;
        MPI_Allreduce(&rank, &remote_sum, 1, MPI_INT, MPI_SUM, inter);
        CHECK(remote_sum == (rank > 0 ? 0 : size * (size - 1) / 2));
        MPI_Status status;
        if (rank == 0)
            for (int i = 1; i < size; i++) {
                MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 0, inter, &status);
                CHECK(data == status.MPI_SOURCE + 1);
            }
        else
            MPI_Send(&rank, 1, MPI_INT, 0, 0, inter);
        MPI_Intercomm_merge(inter, rank == 0, &merged);
        MPI_Comm_rank(merged, &own);
        CHECK(own == (rank == 0 ? size - 1 : rank - 1));
        MPI_Comm_free(&merged);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }

    /* A periodic ring: each process gets one value of each side. */
    int periodic = 1, around[2], sent[2] = {10 * rank, 10 * rank + 1}, left, right;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &left, &right);
    CHECK(left == (rank + size - 1) % size && right == (rank + 1) % size);
    MPI_Neighbor_alltoall(sent, 1, MPI_INT, around, 1, MPI_INT, ring);
    CHECK(around[0] == 10 * left + 1 && around[1] == 10 * right);
    MPI_Comm_free(&ring);

    /* The same as a graph in which every process names the edge that leaves it. */
    int degree = 1, in, out, weighted, from;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    MPI_Dist_graph_neighbors_count(ring, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && !weighted);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, &from, 1, MPI_INT, ring);
    CHECK(from == left);
    MPI_Comm_free(&ring);
    int lengths[3] = {0, 0, 0};
    MPI_Dims_create(12, 3, lengths);
    CHECK(lengths[0] == 3 && lengths[1] == 2 && lengths[2] == 2);
    return end();
}
