/* Memory of a random program: what a seed gives, and what is found. The test computes the same in memory.rs. */
#include <mpi.h>
#include <stdint.h>
#include <string.h>

static const MPI_Datatype BASICS[] = {
    MPI_BYTE, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
    MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_2INT, MPI_FLOAT_INT, MPI_DOUBLE_INT,
    MPI_LONG_INT, MPI_SHORT_INT, MPI_C_BOOL,
};
enum { FLOAT = 9, DOUBLE, FLOAT_COMPLEX, DOUBLE_COMPLEX, TWO_INT, FLOAT_INT, DOUBLE_INT, LONG_INT, SHORT_INT, BOOLEAN };
static const int EXTENTS[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16, 8, 8, 16, 16, 8, 1};

/* Memory that a call reads or writes. */
struct buffer { char *data; size_t bytes; int is_of_window; };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static void write_number(char *at, int is_float, int bytes, long value)
{
    float single = value;
    double wide = value;
    memcpy(at, is_float ? bytes == 4 ? (void *)&single : (void *)&wide : (void *)&value, bytes);
}

/* A small element of a basic type. */
static void write_small(char *at, int basic, uint64_t random)
{
    static const long SMALL[] = {0, 1, -1, 2, 3};
    long value = SMALL[random % 5];
    int index = random >> 32 & 31, extent = EXTENTS[basic];
    memset(at, 0, extent);
    switch (basic) {
    case FLOAT: case DOUBLE: write_number(at, 1, extent, value); break;
    case FLOAT_COMPLEX: case DOUBLE_COMPLEX:
        write_number(at, 1, extent / 2, value);
        write_number(at + extent / 2, 1, extent / 2, SMALL[(random >> 20) % 5]);
        break;
    case TWO_INT: write_number(at, 0, 4, value); memcpy(at + 4, &index, 4); break;
    case FLOAT_INT: write_number(at, 1, 4, value); memcpy(at + 4, &index, 4); break;
    case DOUBLE_INT: write_number(at, 1, 8, value); memcpy(at + 8, &index, 4); break;
    case LONG_INT: write_number(at, 0, 8, value); memcpy(at + 8, &index, 4); break;
    case SHORT_INT: write_number(at, 0, 2, value); memcpy(at + 4, &index, 4); break;
    case BOOLEAN: *at = random >> 3 & 1; break;
    default: write_number(at, 0, extent, value);
    }
}

static void fill(struct buffer *it, uint64_t seed, int basic)
{
    size_t each = basic < 0 ? 8 : EXTENTS[basic];
    for (size_t i = 0; i * each < it->bytes; i++) {
        uint64_t random = mix(seed + (i + 1) * 0x9e3779b97f4a7c15);
        if (basic < 0) memcpy(it->data + 8 * i, &random, it->bytes - 8 * i < 8 ? it->bytes - 8 * i : 8);
        else write_small(it->data + i * each, basic, random);
    }
}

/* Gives equal numbers equal bytes: no negative zeros, and zeros in the gaps of pairs. */
static void clean(struct buffer *it, int basic)
{
    int extent = EXTENTS[basic];
    for (size_t i = 0; i + extent <= it->bytes; i += extent) {
        char *at = it->data + i;
        if (basic == FLOAT || basic == FLOAT_COMPLEX || basic == FLOAT_INT)
            for (int j = 0; j < (basic == FLOAT_COMPLEX ? 8 : 4); j += 4) {
                float value;
                memcpy(&value, at + j, 4);
                if (value == 0) memset(at + j, 0, 4);
            }
        if (basic == DOUBLE || basic == DOUBLE_COMPLEX || basic == DOUBLE_INT)
            for (int j = 0; j < (basic == DOUBLE_COMPLEX ? 16 : 8); j += 8) {
                double value;
                memcpy(&value, at + j, 8);
                if (value == 0) memset(at + j, 0, 8);
            }
        if (basic == DOUBLE_INT || basic == LONG_INT) memset(at + 12, 0, 4);
        if (basic == SHORT_INT) memset(at + 2, 0, 2);
    }
}

static unsigned long long hash(const struct buffer *it)
{
    uint64_t sum = it->bytes;
    for (size_t i = 0; i < it->bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, it->data + i, it->bytes - i < 8 ? it->bytes - i : 8);
        sum = ((sum ^ word) * 0x9e3779b97f4a7c15) ^ sum >> 29;
    }
    return sum;
}
