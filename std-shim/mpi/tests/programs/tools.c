/* The tools interface: control variables before and after MPI_Init, performance variables, categories, wrong handles. */
#include "check.h"

static int find(const char *wanted)
{
    int index = -1;
    CHECK(MPI_T_cvar_get_index(wanted, &index) == MPI_SUCCESS);
    return index;
}

/* Reads a control variable by a handle of its own, after it was written, if there is a value. */
static int control(const char *wanted, const char *value, char *into)
{
    MPI_T_cvar_handle handle;
    int count, code = MPI_SUCCESS;
    CHECK(MPI_T_cvar_handle_alloc(find(wanted), NULL, &handle, &count) == MPI_SUCCESS && count == 1024);
    if (value) code = MPI_T_cvar_write(handle, value);
    CHECK(MPI_T_cvar_read(handle, into) == MPI_SUCCESS);
    CHECK(MPI_T_cvar_handle_free(&handle) == MPI_SUCCESS && handle == MPI_T_CVAR_HANDLE_NULL);
    CHECK(MPI_T_cvar_handle_free(&handle) == MPI_T_ERR_INVALID_HANDLE);
    return code;
}

static void texts(void)
{
    char name[64], description[64];
    int length = 0, full, other = sizeof description, scope, bind, verbosity;
    MPI_Datatype datatype;
    MPI_T_enum none;
    int index = find("UNISONO_EAGER_POOL");
    CHECK(MPI_T_cvar_get_info(index, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS);
    CHECK(length == (int)sizeof "UNISONO_EAGER_POOL");
    full = length;
    memset(name, 'x', sizeof name);
    length = 8;
    MPI_T_cvar_get_info(index, name, &length, &verbosity, &datatype, &none, description, &other, &bind, &scope);
    CHECK(!strcmp(name, "UNISONO") && name[8] == 'x' && length == full);
    CHECK(other > 1 && strlen(description) == (size_t)other - 1 && datatype == MPI_CHAR && none == MPI_T_ENUM_NULL);
    CHECK(bind == MPI_T_BIND_NO_OBJECT && scope == MPI_T_SCOPE_LOCAL && verbosity == MPI_T_VERBOSITY_USER_BASIC);
    length = sizeof name;
    MPI_T_cvar_get_info(index, NULL, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CHECK(length == full);
    CHECK(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_index("UNISONO_NOTHING", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_cvar_get_index("UNISONO_SECRET", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_cvar_get_index(NULL, &index) == MPI_T_ERR_INVALID);
}

static void controls(void)
{
    char value[1024];
    CHECK(control("UNISONO_EAGER_POOL", "64K", value) == MPI_SUCCESS && !strcmp(value, "64K"));
    CHECK(control("UNISONO_EAGER_POOL", "many", value) == MPI_T_ERR_INVALID && !strcmp(value, "64K"));
    CHECK(control("UNISONO_EAGER_POOL", "", value) == MPI_SUCCESS && !strcmp(value, ""));
    CHECK(control("UNISONO_EAGER_POOL", "128K", value) == MPI_SUCCESS && !strcmp(value, "128K"));
    CHECK(control("UNISONO_RANK", "7", value) == MPI_T_ERR_CVAR_SET_NEVER && strcmp(value, "7"));
    CHECK(control("UNISONO_DEVICE", NULL, value) == MPI_SUCCESS && strlen(value) >= 3);
}

/* Each variable is in one category. */
static void categories(void)
{
    int number, controls, counters, others, all[3] = {0}, indices[200], update;
    char name[64];
    CHECK(MPI_T_category_get_num(&number) == MPI_SUCCESS && number > 2);
    for (int i = 0; i < number; i++) {
        int length = sizeof name, index;
        MPI_T_category_get_info(i, name, &length, NULL, NULL, &controls, &counters, &others);
        CHECK(MPI_T_category_get_index(name, &index) == MPI_SUCCESS && index == i);
        all[0] += controls, all[1] += counters, all[2] += others;
        CHECK(MPI_T_category_get_cvars(i, 200, indices) == MPI_SUCCESS);
        for (int j = 1; j < controls; j++) CHECK(indices[j] > indices[j - 1]);
        CHECK(MPI_T_category_get_pvars(i, 0, NULL) == MPI_SUCCESS);
        CHECK(MPI_T_category_get_categories(i, 200, indices) == MPI_SUCCESS);
        for (int j = 0; j < others; j++) CHECK(indices[j] > i && indices[j] < number);
        CHECK(MPI_T_category_get_num_events(i, &others) == MPI_SUCCESS && others == 0);
    }
    MPI_T_cvar_get_num(&controls);
    MPI_T_pvar_get_num(&counters);
    CHECK(all[0] == controls && all[1] == counters && all[2] == number - 2);
    CHECK(MPI_T_category_get_index("nothing", &update) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_category_get_cvars(number, 1, indices) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_changed(&update) == MPI_SUCCESS);
}

static unsigned long long value_of(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    unsigned long long value = 99;
    CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS);
    return value;
}

static MPI_T_pvar_handle allocate(MPI_T_pvar_session session, const char *name, int class)
{
    int index, count;
    MPI_T_pvar_handle handle;
    CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) == MPI_SUCCESS && count == 1);
    return handle;
}

static void exchange(void)
{
    int out = rank, in;
    MPI_Request requests[2];
    MPI_Irecv(&in, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&out, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void counters(void)
{
    MPI_T_pvar_session session, other;
    unsigned long long value, before;
    int state, index, number = 0, length = 64;
    char name[64];
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS && MPI_T_pvar_session_create(&other) == MPI_SUCCESS);
    MPI_T_pvar_handle ended = allocate(session, "unisono_operations", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle again = allocate(session, "unisono_operations", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle unexpected = allocate(session, "unisono_messages_unexpected", MPI_T_PVAR_CLASS_LEVEL);
    MPI_T_pvar_handle posted = allocate(session, "unisono_receives_posted", MPI_T_PVAR_CLASS_LEVEL);
    CHECK(MPI_T_pvar_get_index("unisono_operations", MPI_T_PVAR_CLASS_LEVEL, &index) == MPI_T_ERR_INVALID_NAME);

    /* A handle counts while it is started. */
    exchange();
    CHECK(value_of(session, ended) == 0);
    CHECK(MPI_T_pvar_start(session, ended) == MPI_SUCCESS);
    exchange();
    value = value_of(session, ended);
    CHECK(value > 0 && value_of(session, again) == 0);
    CHECK(MPI_T_pvar_stop(session, ended) == MPI_SUCCESS);
    before = value_of(session, ended);
    exchange();
    CHECK(value_of(session, ended) == before);
    CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    exchange();
    CHECK(value_of(session, ended) > before && value_of(session, again) > 0);
    value = 1000;
    CHECK(MPI_T_pvar_write(session, ended, &value) == MPI_SUCCESS && value_of(session, ended) >= 1000);
    CHECK(MPI_T_pvar_readreset(session, ended, &value) == MPI_SUCCESS && value >= 1000);
    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS && value_of(session, ended) < 1000);
    CHECK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS && value_of(session, again) == 0);

    /* Levels are what they are now. */
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 5; i++) MPI_Isend(&i, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &request), MPI_Request_free(&request);
    CHECK(value_of(session, unexpected) == 5);
    for (int i = 0; i < 5; i++) MPI_Recv(&state, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(value_of(session, unexpected) == 0 && value_of(session, posted) == 0);
    MPI_Irecv(&state, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, &request);
    CHECK(value_of(session, posted) == 1);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(MPI_T_pvar_start(session, posted) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_reset(session, posted) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_write(session, posted, &value) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_readreset(session, posted, &value) == MPI_T_ERR_PVAR_NO_ATOMIC);

    /* The state, with its enumeration. */
    MPI_T_pvar_handle joined = allocate(session, "unisono_state", MPI_T_PVAR_CLASS_STATE);
    MPI_T_enum states;
    MPI_T_pvar_get_index("unisono_state", MPI_T_PVAR_CLASS_STATE, &index);
    MPI_T_pvar_get_info(index, name, &length, NULL, NULL, NULL, &states, NULL, NULL, NULL, NULL, NULL, NULL);
    CHECK(MPI_T_pvar_read(session, joined, &state) == MPI_SUCCESS && state == 1);
    CHECK(MPI_T_enum_get_info(states, &number, NULL, NULL) == MPI_SUCCESS && number == 3);
    length = sizeof name;
    CHECK(MPI_T_enum_get_item(states, 1, &number, name, &length) == MPI_SUCCESS && number == 1 && !strcmp(name, "joined"));
    CHECK(MPI_T_enum_get_item(states, 3, &number, name, &length) == MPI_T_ERR_INVALID_ITEM);
    CHECK(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &number, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);

    /* Wrong handles and sessions. */
    CHECK(MPI_T_pvar_read(other, ended, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(session, MPI_T_PVAR_ALL_HANDLES, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(session, MPI_T_PVAR_HANDLE_NULL, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, ended, &value) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_read(session, ended, NULL) == MPI_T_ERR_INVALID);
    CHECK(MPI_T_pvar_handle_free(session, &again) == MPI_SUCCESS && again == MPI_T_PVAR_HANDLE_NULL);
    MPI_T_pvar_session freed = session;
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_pvar_session_free(&freed) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_read(freed, ended, &value) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_session_free(&other) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_get_num(NULL) == MPI_T_ERR_INVALID);
}

static void events(void)
{
    int number = 7;
    MPI_T_event_registration registration = NULL;
    CHECK(MPI_T_event_get_num(&number) == MPI_SUCCESS && number == 0);
    CHECK(MPI_T_source_get_num(&number) == MPI_SUCCESS && number == 0);
    CHECK(MPI_T_event_get_index("any", &number) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_event_handle_get_info(registration, NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_source_get_timestamp(0, NULL) == MPI_T_ERR_INVALID_INDEX);
}

int main(int argc, char **argv)
{
    int number, provided;
    char value[1024];
    MPI_T_cvar_handle stale;
    CHECK(MPI_T_cvar_get_num(&number) == MPI_T_ERR_NOT_INITIALIZED && MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
    texts();
    controls();
    categories();
    begin(&argc, &argv);
    CHECK(control("UNISONO_EAGER_POOL", "64K", value) == MPI_T_ERR_CVAR_SET_NOT_NOW && !strcmp(value, "128K"));
    texts();
    categories();
    counters();
    events();
    CHECK(MPI_T_cvar_handle_alloc(0, NULL, &stale, &number) == MPI_SUCCESS);
    CHECK(end() == 0);
    CHECK(MPI_T_finalize() == MPI_SUCCESS && MPI_T_cvar_get_num(&number) == MPI_SUCCESS);
    CHECK(control("UNISONO_EAGER_POOL", NULL, value) == MPI_SUCCESS && !strcmp(value, "128K"));
    CHECK(MPI_T_finalize() == MPI_SUCCESS && MPI_T_cvar_get_num(&number) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
    CHECK(MPI_T_cvar_read(stale, value) == MPI_T_ERR_INVALID_HANDLE);
    return MPI_T_finalize();
}
