/* The protocol core of unisono for C: an endpoint that exchanges messages with peers over datagrams that may be lost,
 * duplicated, reordered or late. It allocates nothing, calls no operating system and starts no thread: the program
 * provides a device as a table of functions, memory, and the time. docs/c.md has the rules.
 *
 * One thread at a time uses an endpoint; its functions are not called from the device's functions.
 */
#ifndef UNISONO_CORE_H
#define UNISONO_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unisono_core unisono_core;

/* A received datagram. The device has checked its checksum, if the link has none. */
typedef struct {
    const void *bytes; /* stays valid and unchanged until the slot is released */
    uint32_t length;
    uint32_t from; /* the rank whose address it came from; UINT32_MAX: unknown */
    uint32_t slot; /* less than the device's number of slots; in use until it is released */
} unisono_core_datagram;

/* A device, and where messages go. All functions get `context`. */
typedef struct {
    void *context;
    uint32_t mtu;            /* bytes of the largest datagram */
    uint32_t slots;          /* datagrams that can be buffered without loss: 8 to 65536 */
    uint32_t granularity_ns; /* shortest useful timeout */
    /* Sends a datagram of a header and a payload, which are copied before it returns. It may be lost. */
    void (*send)(void *context, uint32_t to, const void *header, size_t header_bytes, const void *payload,
                 size_t payload_bytes);
    /* Stores the next datagram that has arrived; false if there is none. */
    bool (*receive)(void *context, unisono_core_datagram *datagram);
    /* Frees a slot. */
    void (*release)(void *context, uint32_t slot);
    /* Returns memory for a message of `bytes` bytes, or NULL to drop it. Messages of a rank arrive in order, once. */
    void *(*provide)(void *context, uint32_t from, uint32_t tag, size_t bytes);
    /* The message is in that memory. */
    void (*arrived)(void *context, uint32_t from, uint32_t tag, void *memory, size_t bytes);
} unisono_core_device;

enum {
    UNISONO_CORE_OK = 0,
    UNISONO_CORE_ARGUMENT = 1,      /* NULL, or no such rank */
    UNISONO_CORE_FULL = 2,          /* every record is in use: make progress and poll events */
    UNISONO_CORE_TOO_LONG = 3,      /* longer than unisono_core_longest() */
    UNISONO_CORE_UNKNOWN_PEER = 4,  /* the rank was not added */
    UNISONO_CORE_PEER_FAILED = 5,   /* the rank has failed */
    UNISONO_CORE_PEER_FINISHED = 6, /* the rank has finished */
    UNISONO_CORE_REFUSED = 7,       /* no such grant, or another key */
};

enum {
    UNISONO_CORE_SENT = 1,      /* an operation is complete: `user`, `error` */
    UNISONO_CORE_DELIVERED = 2, /* granted memory was written: `peer` is the placement */
    UNISONO_CORE_FAILED = 3,    /* `peer` has failed */
    UNISONO_CORE_FINISHED = 4,  /* `peer` has finished */
    UNISONO_CORE_SILENT = 5,    /* `peer` answers no probe: call unisono_core_fail() if live ranks always answer */
};

typedef struct {
    uint32_t kind;
    uint32_t peer;
    int32_t error;
    uint64_t user;
} unisono_core_event;

/* Bytes that an endpoint needs, for this number of ranks and slots. */
size_t unisono_core_bytes(uint32_t ranks, uint32_t slots);

/* Makes an endpoint in memory that is lent to it. `incarnation` is random and not 0; `now` is in nanoseconds of a clock
 * that never goes back, here and below. NULL: an argument is wrong, or the memory too small. */
unisono_core *unisono_core_init(void *memory, size_t size, uint32_t rank, uint32_t ranks, uint32_t incarnation,
                                const unisono_core_device *device, uint64_t now);

/* Adds a rank: its incarnation, and the largest datagram on the way to it. */
int32_t unisono_core_add_peer(unisono_core *core, uint64_t now, uint32_t peer, uint32_t incarnation, uint32_t mtu);

/* Bytes of the longest message to a rank. */
uint32_t unisono_core_longest(unisono_core *core, uint32_t peer);

/* Sends a message. The buffer stays unchanged until the event UNISONO_CORE_SENT with `user`. */
int32_t unisono_core_send(unisono_core *core, uint64_t now, uint32_t to, uint32_t tag, const void *buffer,
                          uint32_t bytes, uint64_t user);

/* Lets a rank write to a buffer once, under a random key, which it gets by a message: for data of any length. */
int32_t unisono_core_grant(unisono_core *core, uint32_t peer, void *buffer, uint32_t bytes, uint64_t key,
                           uint32_t *placement);
int32_t unisono_core_withdraw(unisono_core *core, uint32_t placement);
int32_t unisono_core_place(unisono_core *core, uint64_t now, uint32_t to, uint32_t placement, uint64_t key,
                           const void *buffer, uint32_t bytes, uint64_t user);

/* Receives, resends, acknowledges and sends; returns whether anything moved. Call it often, and at the latest after
 * unisono_core_rest() nanoseconds. */
bool unisono_core_progress(unisono_core *core, uint64_t now);
uint64_t unisono_core_rest(unisono_core *core, uint64_t now, uint64_t most);

/* Stores the next event; false if there is none. */
bool unisono_core_poll_event(unisono_core *core, uint64_t now, unisono_core_event *event);

/* Declares a rank failed: what is sent to it ends with UNISONO_CORE_PEER_FAILED. */
int32_t unisono_core_fail(unisono_core *core, uint64_t now, uint32_t peer);

/* Ends this endpoint's part. Make progress until unisono_core_is_closed(). */
int32_t unisono_core_shutdown(unisono_core *core);
bool unisono_core_is_closed(unisono_core *core);

#ifdef __cplusplus
}
#endif

#endif
