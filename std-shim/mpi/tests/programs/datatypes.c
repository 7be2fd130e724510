/* Constructors of datatypes, what they tell, and packing. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Datatype type, other;
    MPI_Aint lower, extent;
    int size_of, position;
    char packed[256];

    /* A column of a 4 x 3 matrix, sent as a vector and received as a row. */
    int matrix[4][3], column[4] = {0};
    for (int i = 0; i < 12; i++) matrix[i / 3][i % 3] = 100 * rank + i;
    MPI_Type_vector(4, 1, 3, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Sendrecv(&matrix[0][1], 1, type, rank, 0, column, 4, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++) CHECK(column[i] == 100 * rank + 3 * i + 1);
    MPI_Type_size(type, &size_of);
    MPI_Type_get_extent(type, &lower, &extent);
    CHECK(size_of == 16 && lower == 0 && extent == 40);

    /* A structure, with what made it. */
    struct pair { char letter; double number; int count; } from = {'x', 2.5, 7}, to;
    int lengths[3] = {1, 1, 1};
    MPI_Aint places[3] = {0, 8, 16};
    MPI_Datatype parts[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, inner[3];
    MPI_Type_create_struct(3, lengths, places, parts, &other);
    MPI_Type_commit(&other);
    MPI_Type_get_extent(other, &lower, &extent);
    CHECK(lower == 0 && extent == sizeof from);
    int integers, addresses, types, combiner, arguments[4];
    MPI_Type_get_envelope(other, &integers, &addresses, &types, &combiner);
    CHECK(integers == 4 && addresses == 3 && types == 3 && combiner == MPI_COMBINER_STRUCT);
    MPI_Type_get_contents(other, 4, 3, 3, arguments, places, inner);
    CHECK(arguments[0] == 3 && places[1] == 8 && inner[1] == MPI_DOUBLE);
    memset(&to, 0, sizeof to);
    position = 0;
    MPI_Pack(&from, 1, other, packed, sizeof packed, &position, MPI_COMM_WORLD);
    CHECK(position == 13);
    position = 0;
    MPI_Unpack(packed, sizeof packed, &position, &to, 1, other, MPI_COMM_WORLD);
    CHECK(to.letter == 'x' && to.number == 2.5 && to.count == 7);
    MPI_Aint place = 0, external_size;
    MPI_Pack_external_size("external32", 1, other, &external_size);
    MPI_Pack_external("external32", &from, 1, other, packed, sizeof packed, &place);
    CHECK(place == 13 && external_size == 13 && packed[12] == 7 && packed[1] == 0x40);
    place = 0;
    memset(&to, 0, sizeof to);
    MPI_Unpack_external("external32", packed, sizeof packed, &place, &to, 1, other);
    CHECK(to.letter == 'x' && to.number == 2.5 && to.count == 7);
    MPI_Type_free(&other);
    MPI_Type_free(&type);

    /* A part of an array, in both orders. */
    int sizes[2] = {4, 6}, subsizes[2] = {2, 3}, starts[2] = {1, 2}, array[24], part[6], n = 0;
    for (int i = 0; i < 24; i++) array[i] = i;
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_commit(&type);
    position = 0;
    MPI_Pack(array, 1, type, part, sizeof part, &position, MPI_COMM_WORLD);
    for (int i = 1; i < 3; i++)
        for (int j = 2; j < 5; j++) CHECK(part[n++] == 6 * i + j);
    MPI_Type_free(&type);
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &type);
    MPI_Type_commit(&type);
    n = position = 0;
    MPI_Pack(array, 1, type, part, sizeof part, &position, MPI_COMM_WORLD);
    for (int j = 2; j < 5; j++)
        for (int i = 1; i < 3; i++) CHECK(part[n++] == 4 * j + i);
    MPI_Type_free(&type);

    /* A block-cyclic array of 5 x 7 on a grid of 2 x 2: every element belongs to one process. */
    int gsizes[2] = {5, 7}, distributions[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    int dargs[2] = {2, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {2, 2}, owners[35] = {0};
    for (int process = 0; process < 4; process++) {
        int global[35], local[35];
        for (int i = 0; i < 35; i++) global[i] = i;
        MPI_Type_create_darray(4, process, 2, gsizes, distributions, dargs, grid, MPI_ORDER_C, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Type_size(type, &size_of);
        MPI_Type_get_extent(type, &lower, &extent);
        CHECK(lower == 0 && extent == 35 * sizeof(int));
        position = 0;
        MPI_Pack(global, 1, type, local, sizeof local, &position, MPI_COMM_WORLD);
        for (int i = 0; i < size_of / (int)sizeof(int); i++) {
            int row = local[i] / 7, col = local[i] % 7;
            CHECK(row / 2 % 2 == process / 2 && col / 4 == process % 2);
            owners[local[i]]++;
        }
        MPI_Type_free(&type);
    }
    for (int i = 0; i < 35; i++) CHECK(owners[i] == 1);

    /* Part of an element arrives. */
    MPI_Status status;
    int elements, count, three[3] = {1, 2, 3}, four[4];
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Sendrecv(three, 3, MPI_INT, rank, 1, four, 2, type, rank, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, type, &count);
    MPI_Get_elements(&status, type, &elements);
    CHECK(count == MPI_UNDEFINED && elements == 3);
    MPI_Type_free(&type);
    return end();
}
