/* Two endpoints in one process, over a wire of this program that loses, duplicates and delays datagrams. They exchange
 * messages in order, and one block that is longer than a datagram. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono_core.h>

enum { MTU = 1024, SLOTS = 64, WIRE = 256, MESSAGES = 500, BLOCK = 200000 };

#define EXPECT(condition)                                                     \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

typedef struct {
    uint32_t length;
    unsigned char bytes[MTU];
} datagram;

typedef struct node {
    struct node *other;
    uint32_t rank;
    datagram wire[WIRE]; /* what was sent to it */
    uint32_t head, tail;
    datagram slots[SLOTS];
    bool used[SLOTS];
    unsigned char message[MTU];
    uint32_t expected, sent;
    uint64_t seed;
    void *memory;
    unisono_core *core;
} node;

static uint32_t chance(node *self) {
    self->seed = self->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(self->seed >> 33) % 100;
}

static void put(node *to, const datagram *from) {
    if (to->head - to->tail < WIRE) to->wire[to->head++ % WIRE] = *from;
}

static void wire_send(void *context, uint32_t to, const void *header, size_t header_bytes, const void *payload,
                      size_t payload_bytes) {
    node *self = context;
    datagram datagram;
    EXPECT(to == self->other->rank && header_bytes + payload_bytes <= MTU);
    memcpy(datagram.bytes, header, header_bytes);
    if (payload_bytes > 0) memcpy(datagram.bytes + header_bytes, payload, payload_bytes);
    datagram.length = (uint32_t)(header_bytes + payload_bytes);
    uint32_t fate = chance(self);
    if (fate < 10) return; /* lost */
    put(self->other, &datagram);
    if (fate < 15) put(self->other, &datagram); /* twice */
    node *other = self->other;
    if (fate > 90 && other->head - other->tail >= 2) { /* overtakes its predecessor */
        datagram = other->wire[(other->head - 1) % WIRE];
        other->wire[(other->head - 1) % WIRE] = other->wire[(other->head - 2) % WIRE];
        other->wire[(other->head - 2) % WIRE] = datagram;
    }
}

static bool wire_receive(void *context, unisono_core_datagram *into) {
    node *self = context;
    if (self->head == self->tail) return false;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        if (self->used[slot]) continue;
        self->used[slot] = true;
        self->slots[slot] = self->wire[self->tail++ % WIRE];
        *into = (unisono_core_datagram){self->slots[slot].bytes, self->slots[slot].length, self->other->rank, slot};
        return true;
    }
    return false;
}

static void wire_release(void *context, uint32_t slot) {
    node *self = context;
    EXPECT(self->used[slot]);
    self->used[slot] = false;
}

static void *provide(void *context, uint32_t from, uint32_t tag, size_t bytes) {
    node *self = context;
    EXPECT(from == self->other->rank && bytes <= sizeof self->message && tag == self->expected);
    return self->message;
}

static void arrived(void *context, uint32_t from, uint32_t tag, void *memory, size_t bytes) {
    node *self = context;
    EXPECT(memory == self->message && from == self->other->rank);
    for (size_t i = 0; i < bytes; i++) EXPECT(self->message[i] == (unsigned char)(tag + i));
    self->expected++;
}

static node nodes[2];
static unsigned char buffers[MESSAGES][700], block[BLOCK], copy[BLOCK];

int main(void) {
    uint64_t now = 1000;
    size_t size = unisono_core_bytes(2, SLOTS);
    for (uint32_t rank = 0; rank < 2; rank++) {
        node *self = &nodes[rank];
        self->other = &nodes[1 - rank];
        self->rank = rank;
        self->seed = rank + 1;
        unisono_core_device device = {self, MTU, SLOTS, 1000, wire_send, wire_receive, wire_release, provide, arrived};
        self->memory = malloc(size);
        EXPECT(unisono_core_init(self->memory, 16, rank, 2, rank + 1, &device, now) == NULL);
        self->core = unisono_core_init(self->memory, size, rank, 2, rank + 1, &device, now);
        EXPECT(self->core != NULL);
        EXPECT(unisono_core_add_peer(self->core, now, 1 - rank, 2 - rank, MTU) == UNISONO_CORE_OK);
    }
    EXPECT(unisono_core_send(NULL, now, 1, 0, block, 1, 0) == UNISONO_CORE_ARGUMENT);
    EXPECT(unisono_core_send(nodes[0].core, now, 1, 0, block, BLOCK, 0) == UNISONO_CORE_TOO_LONG);
    EXPECT(unisono_core_send(nodes[0].core, now, 9, 0, block, 1, 0) == UNISONO_CORE_UNKNOWN_PEER);
    for (size_t i = 0; i < BLOCK; i++) block[i] = (unsigned char)(i * 7 + i / 251);
    uint32_t placement, delivered = 0;
    EXPECT(unisono_core_grant(nodes[1].core, 0, copy, BLOCK, 0x1234567890abcdef, &placement) == UNISONO_CORE_OK);
    uint64_t completed = 0, rounds = 0;
    int32_t placed = unisono_core_place(nodes[0].core, now, 1, placement, 0x1234567890abcdef, block, BLOCK, 1u << 20);
    EXPECT(placed == UNISONO_CORE_OK);
    uint32_t posted = 0;
    while (completed < 2 * MESSAGES + 1 || delivered == 0) {
        EXPECT(rounds++ < 10000000);
        now += 20000;
        for (uint32_t rank = 0; rank < 2; rank++) {
            node *self = &nodes[rank];
            while (self->sent < MESSAGES) {
                uint32_t bytes = self->sent * 37 % sizeof buffers[0], i = self->sent;
                for (uint32_t j = 0; j < bytes; j++) buffers[i][j] = (unsigned char)(i + j);
                int32_t result = unisono_core_send(self->core, now, 1 - rank, i, buffers[i], bytes, i);
                if (result == UNISONO_CORE_FULL) break;
                EXPECT(result == UNISONO_CORE_OK);
                self->sent++;
                posted++;
            }
            unisono_core_progress(self->core, now);
            unisono_core_event event;
            while (unisono_core_poll_event(self->core, now, &event)) {
                if (event.kind == UNISONO_CORE_SENT) {
                    EXPECT(event.error == UNISONO_CORE_OK);
                    completed++;
                } else {
                    EXPECT(event.kind == UNISONO_CORE_DELIVERED && event.peer == placement);
                    delivered++;
                }
            }
        }
    }
    EXPECT(nodes[0].expected == MESSAGES && nodes[1].expected == MESSAGES && memcmp(block, copy, BLOCK) == 0);
    for (uint32_t rank = 0; rank < 2; rank++) unisono_core_shutdown(nodes[rank].core);
    bool closed = false;
    for (rounds = 0; !closed && rounds < 1000000; rounds++) {
        now += 20000;
        closed = true;
        for (uint32_t rank = 0; rank < 2; rank++) {
            unisono_core_progress(nodes[rank].core, now);
            closed &= unisono_core_is_closed(nodes[rank].core);
        }
    }
    EXPECT(closed);
    printf("%u messages and a block of %d bytes over a faulty wire\n", posted, BLOCK);
    for (uint32_t rank = 0; rank < 2; rank++) free(nodes[rank].memory);
    return 0;
}
