/* Objects and arguments that are not used any more, or not at all. */
#include "check.h"

/* A datatype that was freed lives on in another one, which gives it back. */
static void freed_datatype(void)
{
    MPI_Datatype pair, both, inside[2];
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){pair, pair}, &both);
    MPI_Type_free(&pair);
    int integers, addresses, types, combiner, counts[3];
    MPI_Aint offsets[2];
    for (int round = 0; round < 2; round++) {
        CHECK(MPI_Type_get_envelope(both, &integers, &addresses, &types, &combiner) == MPI_SUCCESS && types == 2);
        CHECK(MPI_Type_get_contents(both, 3, 2, 2, counts, offsets, inside) == MPI_SUCCESS);
        for (int i = 0; i < 2; i++) {
            int size = 0;
            CHECK(MPI_Type_get_envelope(inside[i], &integers, &addresses, &types, &combiner) == MPI_SUCCESS);
            CHECK(combiner == MPI_COMBINER_CONTIGUOUS && MPI_Type_size(inside[i], &size) == MPI_SUCCESS && size == 8);
            CHECK(MPI_Type_free(&inside[i]) == MPI_SUCCESS);
        }
    }
    MPI_Type_free(&both);
}

/* A code has to lose its text, and a class its codes, before it is removed. */
static void error_codes(void)
{
    int class, code;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Add_error_class(&class) == MPI_SUCCESS && MPI_Add_error_code(class, &code) == MPI_SUCCESS);
    MPI_Add_error_string(class, "a class");
    MPI_Add_error_string(code, "a code");
    CHECK(MPI_Remove_error_code(code) != MPI_SUCCESS && MPI_Remove_error_class(class) != MPI_SUCCESS);
    CHECK(MPI_Remove_error_string(code) == MPI_SUCCESS && MPI_Remove_error_string(class) == MPI_SUCCESS);
    CHECK(MPI_Remove_error_class(class) != MPI_SUCCESS);
    CHECK(MPI_Remove_error_code(code) == MPI_SUCCESS && MPI_Remove_error_class(class) == MPI_SUCCESS);
}

/* No element has no wrong operation, and a window says which memory a rank can load from. */
static void windows(void)
{
    MPI_Win win;
    int *memory, *base = NULL, unit, none;
    MPI_Aint bytes;
    MPI_Win_allocate(sizeof(int), 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_fence(0, win);
    CHECK(MPI_Get_accumulate(&none, 0, MPI_BYTE, &none, 0, MPI_BYTE, rank, 0, 0, MPI_BYTE, MPI_SUM, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    CHECK(MPI_Win_shared_query(win, rank, &bytes, &unit, &base) == MPI_SUCCESS);
    CHECK(bytes == sizeof(int) && unit == 4 && base == memory);
    /* Over UDP no rank loads from another one's memory. */
    CHECK(MPI_Win_shared_query(win, (rank + 1) % size, &bytes, &unit, &base) == MPI_SUCCESS);
    CHECK((bytes == 0) == (base == NULL));
    MPI_Win_free(&win);
}

/* Of the root's group, only the root's arguments mean something. */
static void reduction_between_groups(void)
{
    MPI_Comm part, other;
    int is_first = rank == 0, sum = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank == size - 1, 0, &part);
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank == size - 1 ? 0 : size - 1, 1, &other);
    if (rank == size - 1)
        CHECK(MPI_Reduce(&rank, NULL, 1, MPI_INT, MPI_SUM, 0, other) == MPI_SUCCESS);
    else if (is_first)
        CHECK(MPI_Reduce(NULL, &sum, 1, MPI_INT, MPI_SUM, MPI_ROOT, other) == MPI_SUCCESS && sum == size - 1);
    else
        CHECK(MPI_Reduce(NULL, NULL, 0, MPI_BYTE, MPI_SUM, MPI_PROC_NULL, other) == MPI_SUCCESS);
    MPI_Comm_free(&other);
    MPI_Comm_free(&part);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    freed_datatype();
    error_codes();
    windows();
    reduction_between_groups();
    return end();
}
