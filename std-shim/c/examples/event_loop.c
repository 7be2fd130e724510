/* An event loop: rank 0 serves the others from `poll`, beside a timer of its own. The others ask from threads. */

#include <poll.h>
#include <time.h>

#include "check.h"

enum { QUESTIONS = 50 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void serve(unisono_communicator world, uint32_t size) {
    int fd;
    CHECK(unisono_event_fd(world, &fd));
    uint64_t question = 0;
    size_t left = (size_t)(size - 1) * QUESTIONS, ticks = 0, sleeps = 0;
    double tick = now();
    unisono_request request = UNISONO_REQUEST_NULL;
    while (left > 0) {
        if (request == UNISONO_REQUEST_NULL) {
            CHECK(unisono_immediate_receive(world, &question, 1, UNISONO_UINT64, UNISONO_ANY_SOURCE, 1, &request));
        }
        bool done;
        unisono_status status;
        CHECK(unisono_test(&request, &done, &status));
        if (done) {
            uint64_t answer = question * question;
            CHECK(unisono_send(world, &answer, 1, UNISONO_UINT64, status.source, 2));
            left--;
            continue;
        }
        bool armed;
        CHECK(unisono_arm(world, &armed));
        /* Arming makes progress: what it has completed signals nothing any more. */
        CHECK(unisono_test(&request, &done, &status));
        if (done) {
            uint64_t answer = question * question;
            CHECK(unisono_send(world, &answer, 1, UNISONO_UINT64, status.source, 2));
            left--;
            continue;
        }
        if (!armed) continue;
        struct pollfd entry = {fd, POLLIN, 0};
        sleeps++;
        if (poll(&entry, 1, 10) > 0) CHECK(unisono_progress(world, NULL));
        if (now() - tick > 0.01) {
            ticks++;
            tick = now();
        }
    }
    printf("answered %u questions in an event loop\n", (size - 1) * QUESTIONS);
    EXPECT(size == 1 || sleeps > 0);
}

static void ask(unisono_communicator world, uint32_t rank) {
    for (uint64_t i = 0; i < QUESTIONS; i++) {
        uint64_t question = rank * 1000 + i, answer;
        CHECK(unisono_send(world, &question, 1, UNISONO_UINT64, 0, 1));
        CHECK(unisono_receive(world, &answer, 1, UNISONO_UINT64, 0, 2, NULL));
        EXPECT(answer == question * question);
        struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
    }
}

int main(void) {
    unisono_communicator world;
    CHECK(unisono_join(NULL, &world));
    uint32_t rank, size;
    CHECK(unisono_rank(world, &rank));
    CHECK(unisono_size(world, &size));
    if (rank == 0) {
        serve(world, size);
    } else {
        ask(world, rank);
    }
    unisono_counters counters;
    CHECK(unisono_read_counters(world, &counters));
    CHECK(unisono_finish(world));
    return 0;
}
