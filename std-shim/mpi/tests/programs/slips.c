/* What other libraries got wrong: integers of handles before MPI_Init, error handlers of files and communicators, the
 * extra argument of callbacks, profiling twins. */
#include "check.h"

static int comm_errors, file_errors, queried, freed, cancelled_with;

static void of_comm(MPI_Comm *comm, int *code, ...)
{
    CHECK(*comm == MPI_COMM_WORLD && *code == MPI_ERR_OTHER);
    comm_errors++;
}

static void of_file(MPI_File *file, int *code, ...)
{
    CHECK(*file == MPI_FILE_NULL && *code == MPI_ERR_IO);
    file_errors++;
}

static int query(void *extra, MPI_Status *status)
{
    queried += *(int *)extra;
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int release(void *extra)
{
    freed += *(int *)extra;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    cancelled_with += *(int *)extra + complete;
    return MPI_SUCCESS;
}

static int copy(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag)
{
    (void)type, (void)key;
    *(int *)extra += 1;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value;
    *(int *)extra += 10;
    return MPI_SUCCESS;
}

static int delete_of_window(MPI_Win window, int key, void *value, void *extra)
{
    (void)window, (void)key, (void)value;
    *(int *)extra += 100;
    return MPI_SUCCESS;
}

static void integers(void)
{
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    CHECK(MPI_Comm_toint(MPI_COMM_WORLD) == (int)(long)MPI_COMM_WORLD);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_INT)) == MPI_INT);
    CHECK(MPI_Op_fromint(MPI_Op_toint(MPI_SUM)) == MPI_SUM);
    CHECK(MPI_Request_fromint(MPI_Request_toint(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);
    CHECK(MPI_Errhandler_fromint(MPI_Errhandler_toint(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN);
    CHECK(MPI_File_fromint(MPI_File_toint(MPI_FILE_NULL)) == MPI_FILE_NULL);
    CHECK(MPI_Win_fromint(MPI_Win_toint(MPI_WIN_NULL)) == MPI_WIN_NULL);
    CHECK(MPI_Info_fromint(MPI_Info_toint(MPI_INFO_ENV)) == MPI_INFO_ENV);
}

int main(int argc, char **argv)
{
    integers();
    begin(&argc, &argv);
    integers();

    MPI_Errhandler for_comm, for_file, got;
    MPI_Comm_create_errhandler(of_comm, &for_comm);
    MPI_File_create_errhandler(of_file, &for_file);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, for_comm);
    MPI_File_set_errhandler(MPI_FILE_NULL, for_file);
    MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
    CHECK(comm_errors == 1 && file_errors == 0);
    MPI_File_call_errhandler(MPI_FILE_NULL, MPI_ERR_IO);
    CHECK(comm_errors == 1 && file_errors == 1);
    MPI_File_get_errhandler(MPI_FILE_NULL, &got);
    CHECK(got == for_file);
    MPI_Errhandler_free(&got);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&for_comm);
    MPI_Errhandler_free(&for_file);

    int extra = 7, flag, count;
    MPI_Request request;
    MPI_Status status;
    MPI_Grequest_start(query, release, cancel, &extra, &request);
    MPI_Cancel(&request);
    CHECK(cancelled_with == 7);
    MPI_Grequest_complete(request);
    MPI_Wait(&request, &status);
    MPI_Get_elements(&status, MPI_INT, &count);
    CHECK(queried == 7 && freed == 7 && count == 3 && request == MPI_REQUEST_NULL);

    int key, value = 1, *found;
    MPI_Datatype type, twin;
    extra = 0;
    MPI_Type_create_keyval(copy, delete, &key, &extra);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_set_attr(type, key, &value);
    MPI_Type_dup(type, &twin);
    MPI_Type_get_attr(twin, key, &found, &flag);
    CHECK(flag && found == &value && extra == 1);
    MPI_Type_free(&twin);
    MPI_Type_free(&type);
    MPI_Type_free_keyval(&key);
    CHECK(extra == 21);
    MPI_Win window;
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_of_window, &key, &extra);
    MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_SELF, &window);
    MPI_Win_set_attr(window, key, &value);
    MPI_Win_free(&window);
    CHECK(extra == 121);

    /* A twin is the same function. */
    int sum, again;
    CHECK(PMPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Allreduce(&rank, &again, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && sum == again);
    return end();
}
