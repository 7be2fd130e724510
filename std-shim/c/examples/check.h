/* Ends the program with the text of an error. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unisono.h>

#define CHECK(call)                                                                            \
    do {                                                                                       \
        unisono_result check_result = (call);                                                  \
        if (check_result != UNISONO_OK) {                                                      \
            fprintf(stderr, "%s: %s: %s\n", #call, unisono_result_name((int32_t)check_result), \
                    unisono_error_text());                                                     \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#define EXPECT(condition)                                                        \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

#endif
