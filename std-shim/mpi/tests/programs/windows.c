/* Windows of all kinds: copies through datatypes, updates, epochs, attributes, errors. */
#include "check.h"

static int next, before;

static void created(void)
{
    int memory[60], there[30], n = 10;
    MPI_Win win;
    MPI_Datatype column;
    for (int i = 0; i < 60; i++) memory[i] = -1;
    CHECK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    /* Every third element of the target. */
    int own[10];
    for (int i = 0; i < n; i++) own[i] = 100 * rank + i;
    MPI_Type_vector(n, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    CHECK(MPI_Put(own, n, MPI_INT, next, 2, 1, column, win) == MPI_SUCCESS);
    CHECK(MPI_Put(own, n, MPI_INT, MPI_PROC_NULL, 0, n, MPI_INT, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 60; i++) CHECK(memory[i] == (i >= 2 && i < 32 && i % 3 == 2 ? 100 * before + i / 3 : -1));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 30; i++) there[i] = 7;
    CHECK(MPI_Get(there, 1, column, next, 2, 1, column, win) == MPI_SUCCESS);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    for (int i = 0; i < 30; i++) CHECK(there[i] == (i % 3 == 0 ? 100 * rank + i / 3 : 7));
    MPI_Type_free(&column);
    CHECK(MPI_Win_free(&win) == MPI_SUCCESS && win == MPI_WIN_NULL);
}

static void updated(void)
{
    struct { long sum; double product; long double wide; struct { int value, index; } pair; short small; } *memory;
    long one = 1, old;
    int value;
    MPI_Win win;
    MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memory->sum = 0, memory->product = 1, memory->wide = 0, memory->pair.value = 1000, memory->pair.index = -1, memory->small = 3;
#define AT(field) ((MPI_Aint)((char *)&memory->field - (char *)memory))
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    double two = 2;
    long double half = 0.5L;
    struct { int value, index; } pair = {100 - rank, rank};
    for (int i = 0; i < 10; i++) {
        CHECK(MPI_Accumulate(&one, 1, MPI_LONG, 0, AT(sum), 1, MPI_LONG, MPI_SUM, win) == MPI_SUCCESS);
        CHECK(MPI_Accumulate(&half, 1, MPI_LONG_DOUBLE, 0, AT(wide), 1, MPI_LONG_DOUBLE, MPI_SUM, win) == MPI_SUCCESS);
    }
    CHECK(MPI_Accumulate(&two, 1, MPI_DOUBLE, 0, AT(product), 1, MPI_DOUBLE, MPI_PROD, win) == MPI_SUCCESS);
    CHECK(MPI_Accumulate(&pair, 1, MPI_2INT, 0, AT(pair), 1, MPI_2INT, MPI_MINLOC, win) == MPI_SUCCESS);
    CHECK(MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, AT(sum), MPI_SUM, win) == MPI_SUCCESS && old >= 10);
    CHECK(MPI_Win_flush(0, win) == MPI_SUCCESS);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Get_accumulate(NULL, 0, MPI_LONG, &old, 1, MPI_LONG, 0, AT(sum), 1, MPI_LONG, MPI_NO_OP, win);
    CHECK(old == 11 * size);
    long double wide;
    MPI_Get(&wide, 1, MPI_LONG_DOUBLE, 0, AT(wide), 1, MPI_LONG_DOUBLE, win);
    MPI_Get(&two, 1, MPI_DOUBLE, 0, AT(product), 1, MPI_DOUBLE, win);
    MPI_Get(&pair, 1, MPI_2INT, 0, AT(pair), 1, MPI_2INT, win);
    CHECK(MPI_Win_unlock(0, win) == MPI_SUCCESS);
    CHECK(wide == 5.0L * size && two == (double)(1 << size) && pair.value == 101 - size && pair.index == size - 1);
    /* One rank wins. */
    short expected = 3, mine = (short)(10 + rank), found;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Compare_and_swap(&mine, &expected, &found, MPI_SHORT, 0, AT(small), win);
    MPI_Win_unlock(0, win);
    value = found == 3;
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(value == 1);
    MPI_Request request;
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    CHECK(MPI_Rput(&one, 1, MPI_LONG, next, AT(sum), 1, MPI_LONG, win, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && request == MPI_REQUEST_NULL);
    MPI_Win_unlock(next, win);
    MPI_Win_free(&win);
}

static void shared(void)
{
    MPI_Comm node;
    MPI_Win win;
    int *own, *first, node_rank, node_size, unit;
    MPI_Aint bytes;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    CHECK(MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node, &own, &win) == MPI_SUCCESS);
    MPI_Win_shared_query(win, 0, &bytes, &unit, &first);
    CHECK(bytes == sizeof(int) && unit == sizeof(int) && own == first + node_rank);
    MPI_Win_fence(0, win);
    *own = node_rank;
    MPI_Win_fence(0, win);
    for (int i = 0; i < node_size; i++) CHECK(first[i] == i);
    int got = -1;
    MPI_Get(&got, 1, MPI_INT, node_size - 1, 0, 1, MPI_INT, win);
    CHECK(got == node_size - 1);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    /* A rank without memory has a unit, and no address. */
    MPI_Aint parts[2] = {sizeof(int), 0};
    CHECK(MPI_Win_allocate_shared(parts[node_rank % 2], sizeof(int), MPI_INFO_NULL, node, &own, &win) == MPI_SUCCESS);
    for (int i = 0; i < node_size; i++) {
        MPI_Win_shared_query(win, i, &bytes, &unit, &first);
        CHECK(bytes == parts[i % 2] && (first == NULL) == i % 2 && unit == sizeof(int));
    }
    MPI_Win_free(&win);
    MPI_Comm_free(&node);
}

static void dynamic(void)
{
    int pieces[2][4] = {{0}}, values[4];
    MPI_Win win;
    MPI_Aint there[2], all[64];
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int i = 0; i < 2; i++) {
        CHECK(MPI_Win_attach(win, pieces[i], sizeof pieces[i]) == MPI_SUCCESS);
        MPI_Get_address(pieces[i], &there[i]);
    }
    MPI_Allgather(there, 2, MPI_AINT, all, 2, MPI_AINT, MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) values[i] = 10 * rank + i;
    MPI_Win_fence(0, win);
    for (int to = 0; to < size; to++) {
        MPI_Accumulate(values, 4, MPI_INT, to, all[2 * to + 1], 4, MPI_INT, MPI_SUM, win);
    }
    MPI_Put(values, 1, MPI_INT, next, MPI_Aint_add(all[2 * next], 8), 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 4; i++) CHECK(pieces[1][i] == 10 * size * (size - 1) / 2 + i * size);
    CHECK(pieces[0][2] == 10 * before);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    /* The pieces are adjacent. */
    CHECK(MPI_Get(values, 4, MPI_INT, next, all[2 * next] + 4, 4, MPI_INT, win) == MPI_SUCCESS);
    MPI_Win_unlock(next, win);
    CHECK(values[1] == 10 * rank && values[3] == 10 * size * (size - 1) / 2);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    CHECK(MPI_Get(values, 4, MPI_INT, next, all[2 * next + 1] + 4, 4, MPI_INT, win) == MPI_ERR_RMA_RANGE);
    MPI_Win_unlock(next, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) CHECK(MPI_Win_detach(win, pieces[i]) == MPI_SUCCESS);
    MPI_Win_free(&win);
}

/* Nothing is attached between the blocks. */
static void apart(void)
{
    int memory[8] = {0}, values[4] = {rank, rank + 1, rank + 2, rank + 3}, got[4];
    MPI_Win win;
    MPI_Aint there, all[64];
    MPI_Datatype ends;
    MPI_Type_vector(2, 2, 6, MPI_INT, &ends);
    MPI_Type_commit(&ends);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    CHECK(MPI_Win_attach(win, memory, 2 * sizeof(int)) == MPI_SUCCESS);
    CHECK(MPI_Win_attach(win, memory + 6, 2 * sizeof(int)) == MPI_SUCCESS);
    MPI_Get_address(memory, &there);
    MPI_Allgather(&there, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_fence(0, win);
    CHECK(MPI_Put(values, 4, MPI_INT, next, all[next], 1, ends, win) == MPI_SUCCESS);
    CHECK(MPI_Get(NULL, 0, MPI_INT, next, 0, 0, MPI_INT, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    CHECK(memory[0] == before && memory[1] == before + 1 && memory[2] == 0);
    CHECK(memory[6] == before + 2 && memory[7] == before + 3);
    CHECK(MPI_Get(got, 4, MPI_INT, next, all[next], 1, ends, win) == MPI_SUCCESS);
    for (int i = 0; i < 4; i++) CHECK(got[i] == values[i]);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Type_free(&ends);
}

/* The columns of a matrix of the program's memory, more of it than one message holds. */
static void columns(void)
{
    enum { SIDE = 80 };
    static int matrix[SIDE * SIDE], values[SIDE * SIDE], got[SIDE * SIDE];
    MPI_Datatype column, every;
    MPI_Win win;
    MPI_Type_vector(SIDE, 1, SIDE, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &every);
    MPI_Type_commit(&every);
    for (int i = 0; i < SIDE * SIDE; i++) values[i] = rank * SIDE * SIDE + i;
    MPI_Win_create(matrix, sizeof matrix, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(values, SIDE * SIDE, MPI_INT, next, 0, SIDE, every, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) CHECK(matrix[j * SIDE + i] == (before * SIDE + i) * SIDE + j);
    MPI_Win_fence(0, win);
    MPI_Accumulate(values, SIDE * SIDE, MPI_INT, next, 0, SIDE, every, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Get_accumulate(values, SIDE * SIDE, MPI_INT, got, SIDE * SIDE, MPI_INT, next, 0, SIDE, every, MPI_REPLACE, win);
    for (int i = 0; i < SIDE * SIDE; i++) CHECK(got[i] == 2 * values[i]);
    MPI_Get(got, SIDE * SIDE, MPI_INT, next, 0, SIDE, every, win);
    for (int i = 0; i < SIDE * SIDE; i++) CHECK(got[i] == values[i]);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Type_free(&column);
    MPI_Type_free(&every);
}

static void groups(void)
{
    int memory[2] = {-1, -1};
    MPI_Win win;
    MPI_Group all, target, origin;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &next, &target);
    MPI_Group_incl(all, 1, &before, &origin);
    for (int i = 0; i < 2; i++) {
        CHECK(MPI_Win_post(origin, 0, win) == MPI_SUCCESS && MPI_Win_start(target, 0, win) == MPI_SUCCESS);
        int value = rank + 10 * i;
        MPI_Put(&value, 1, MPI_INT, next, i, 1, MPI_INT, win);
        CHECK(MPI_Win_complete(win) == MPI_SUCCESS);
        int flag = i == 0;
        if (i == 0) CHECK(MPI_Win_wait(win) == MPI_SUCCESS);
        while (!flag) CHECK(MPI_Win_test(win, &flag) == MPI_SUCCESS);
        CHECK(memory[i] == before + 10 * i);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&target);
    MPI_Group_free(&origin);
    MPI_Win_free(&win);
}

static int deleted;

static int delete(MPI_Win win, int key, void *value, void *extra)
{
    (void)win, (void)key, (void)extra;
    deleted += *(int *)value;
    return MPI_SUCCESS;
}

static void described(void)
{
    char memory[24], name[MPI_MAX_OBJECT_NAME];
    int flag, *unit, key, five = 5, length;
    MPI_Aint *bytes;
    void *base;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    CHECK(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag) == MPI_SUCCESS && flag && base == memory);
    CHECK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag) == MPI_SUCCESS && flag && *bytes == sizeof memory);
    CHECK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag) == MPI_SUCCESS && flag && *unit == 4);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete, &key, NULL);
    MPI_Win_set_attr(win, key, &five);
    MPI_Win_free_keyval(&key);
    MPI_Win_set_name(win, "memory");
    CHECK(MPI_Win_get_name(win, name, &length) == MPI_SUCCESS && length == 6 && strcmp(name, "memory") == 0);
    /* Wrong uses. */
    int value = 0;
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CHECK(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, win) == MPI_ERR_RMA_SYNC);
    CHECK(MPI_Win_unlock(next, win) == MPI_ERR_RMA_SYNC && MPI_Win_complete(win) == MPI_ERR_RMA_SYNC);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    CHECK(MPI_Put(&value, 1, MPI_INT, next, 6, 1, MPI_INT, win) == MPI_ERR_RMA_RANGE);
    CHECK(MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win) == MPI_ERR_RANK);
    CHECK(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win) == MPI_ERR_RMA_SYNC);
    CHECK(MPI_Win_lock(0, next, 0, win) == MPI_ERR_LOCKTYPE);
    MPI_Win_unlock(next, win);
    CHECK(MPI_Win_free(&win) == MPI_SUCCESS && deleted == 5);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    next = (rank + 1) % size, before = (rank + size - 1) % size;
    created();
    updated();
    shared();
    dynamic();
    apart();
    columns();
    groups();
    described();
    return end();
}
