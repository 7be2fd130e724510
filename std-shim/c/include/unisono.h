/* unisono: messaging and collective communication on clusters. Made by cbindgen: do not edit. docs/c.md has the rules.
 *
 * Results: every function returns UNISONO_OK or an error, whose text unisono_error_text() has for the calling thread.
 * Handles are numbers: a wrong or freed one is UNISONO_ERROR_HANDLE. NULL where a pointer is needed is
 * UNISONO_ERROR_ARGUMENT; sizes and offsets that exceed the address space are refused.
 *
 * Threads: any thread may call any function at any time. Two do not wait for the same request at once
 * (UNISONO_ERROR_UNDER_WAY), and the collectives of one communicator are started by one thread at a time.
 *
 * fork: a child process must not use the library; it gets UNISONO_ERROR_FORKED. It may call exec or _exit. The parent
 * goes on. Memory of unisono_allocate is shared with the child.
 *
 * Signals: no function may be called from a signal handler.
 */

#ifndef UNISONO_H
#define UNISONO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The send buffer of a collective whose receive buffer holds the input, too. */
#define UNISONO_IN_PLACE ((const void *)UINTPTR_MAX)


// Any rank of the communicator.
#define UNISONO_ANY_SOURCE UINT32_MAX

// Any tag. It is no tag of a message.
#define UNISONO_ANY_TAG UINT32_MAX

// The bytes of `unisono_rkey`.
#define UNISONO_RKEY_BYTES 40

// Other ranks may read the region.
#define UNISONO_RIGHT_READ 1

// Other ranks may write it.
#define UNISONO_RIGHT_WRITE 2

// Other ranks may update it.
#define UNISONO_RIGHT_ATOMIC 4

// The first whole operation is the last one.
#define UNISONO_RIGHT_ONCE 8

// How a call ended. Everything but `UNISONO_OK` is an error, of which `unisono_error_text` has the text.
typedef enum {
  // It did what it should.
  UNISONO_OK = 0,
  // An argument is NULL, too large, or contradicts another one. Nothing was done, as for the errors up to
  // `UNISONO_ERROR_UNDER_WAY`.
  UNISONO_ERROR_ARGUMENT = 1,
  // A handle is not of this kind, or what it named is freed.
  UNISONO_ERROR_HANDLE = 2,
  // A datatype cannot be built or used here: too large, or parts of a receive buffer overlap.
  UNISONO_ERROR_DATATYPE = 3,
  // The communicator has no such rank.
  UNISONO_ERROR_RANK = 4,
  // A buffer of a collective has the wrong length.
  UNISONO_ERROR_LENGTH = 5,
  // The operation is not defined for the datatype.
  UNISONO_ERROR_OPERATION = 6,
  // Something is still under way: a request that is in use by another thread, or that is not complete.
  UNISONO_ERROR_UNDER_WAY = 7,
  // The message is longer than the buffer of its receive, here or at the other end.
  UNISONO_ERROR_TRUNCATED = 8,
  // A rank has failed.
  UNISONO_ERROR_PEER_FAILED = 9,
  // A rank has finished, and takes no more part.
  UNISONO_ERROR_PEER_FINISHED = 10,
  // A rank violated the protocol, or the shared memory was overwritten.
  UNISONO_ERROR_CORRUPTED = 11,
  // A rank calls another collective, or with other arguments.
  UNISONO_ERROR_DISAGREES = 12,
  // The communicator was revoked, or the memory of a window or a region is not accessible any more.
  UNISONO_ERROR_REVOKED = 13,
  // Memory or another resource is used up.
  UNISONO_ERROR_RESOURCES = 14,
  // The network device is gone.
  UNISONO_ERROR_DEVICE = 15,
  // This process has finished, or the job was aborted.
  UNISONO_ERROR_FINISHED = 16,
  // The job cannot be joined.
  UNISONO_ERROR_JOIN = 17,
  // The call was made in a child process after `fork`.
  UNISONO_ERROR_FORKED = 18,
  // A defect of the library.
  UNISONO_ERROR_INTERNAL = 19,
  // An access to a window or a region is out of its bounds, not aligned to its elements, or not permitted. Nothing was
  // accessed.
  UNISONO_ERROR_WINDOW = 20,
  // In a job that checks types (`--check`): the message has elements of another type than the buffer of its receive.
  UNISONO_ERROR_TYPE = 21,
} unisono_result;

// Makes the value of a duplicate, in `unisono_duplicate`: stores it and returns true; false: the duplicate gets none.
// It neither throws nor calls `longjmp`.
typedef bool (*unisono_attribute_copy)(void *value, void *context, void **copied);

// Frees a value that is replaced or removed, or whose communicator is freed. It neither throws nor calls `longjmp`.
typedef void (*unisono_attribute_delete)(void *value, void *context);

// Names an attribute. Each key names another one.
typedef uint64_t unisono_attribute_key;

// A communicator: a group of ranks, numbered from 0 on.
typedef uint64_t unisono_communicator;

// A datatype: which bytes of a buffer are transferred. A predefined one, or made by a call; it can be used at once.
typedef uint64_t unisono_datatype;

// A reduction operation: a predefined one, or made by a call.
typedef uint64_t unisono_operation;

// Something that was started. The memory that it uses is the library's until it is complete.
typedef uint64_t unisono_request;

// What ranks of a node share.
typedef uint32_t unisono_unit;

// Counters of this rank since it joined.
typedef struct {
  // Datagrams that were sent, and their bytes.
  uint64_t datagrams_sent;
  // Bytes of these.
  uint64_t bytes_sent;
  // Of these, data that were resent because a later segment was acknowledged.
  uint64_t resent_nack;
  // Of these, data that were resent because a probe was answered.
  uint64_t resent_probe;
  // Datagrams that were accepted.
  uint64_t datagrams_accepted;
  // Bytes of these.
  uint64_t bytes_accepted;
  // Datagrams that had been received before.
  uint64_t duplicates;
  // Datagrams that were dropped.
  uint64_t dropped;
  // Datagrams that were accepted, but were not the next of their peer.
  uint64_t out_of_order;
} unisono_counters;

// Memory that was allocated.
typedef uint64_t unisono_memory;

// A received message, or one that a probe has found.
typedef struct {
  // The rank that sent it.
  uint32_t source;
  // Its tag.
  uint32_t tag;
  // Its length in bytes.
  size_t bytes;
} unisono_status;

// A message that a matched probe has removed: no other receive matches it.
typedef uint64_t unisono_message;

// A function that combines `count` elements: `result[i] = left[i] · right[i]`. It must be associative. `result` is
// `left`, `right` or elsewhere; all are aligned to 16 bytes. It is called in any thread that makes progress, must not
// call the library, and must neither throw nor `longjmp`.
typedef void (*unisono_function)(const void *left, const void *right, void *result, size_t count, void *context);

// A region of this rank.
typedef uint64_t unisono_region;

// What other ranks need to access a region: plain bytes, to be sent to those that may.
typedef struct {
  // Opaque.
  uint8_t bytes[UNISONO_RKEY_BYTES];
} unisono_rkey;

// A region of a rank, which may be this one, as its key gives access to it.
typedef uint64_t unisono_remote_region;

// A window.
typedef uint64_t unisono_window;

// No communicator.
#define UNISONO_COMMUNICATOR_NULL 0

// The memory of their node.
#define UNISONO_UNIT_NODE 0

// The socket that has all their processors.
#define UNISONO_UNIT_SOCKET 1

// The NUMA node that has all their processors.
#define UNISONO_UNIT_NUMA 2

// The last-level cache of all their processors.
#define UNISONO_UNIT_CACHE 3

// The adapter and port, or the interface, of their first rail.
#define UNISONO_UNIT_RAIL 4

// A byte.
#define UNISONO_BYTE 1

// `int8_t`.
#define UNISONO_INT8 2

// `int16_t`.
#define UNISONO_INT16 3

// `int32_t`.
#define UNISONO_INT32 4

// `int64_t`.
#define UNISONO_INT64 5

// `uint8_t`.
#define UNISONO_UINT8 6

// `uint16_t`.
#define UNISONO_UINT16 7

// `uint32_t`.
#define UNISONO_UINT32 8

// `uint64_t`.
#define UNISONO_UINT64 9

// `float`.
#define UNISONO_FLOAT 10

// `double`.
#define UNISONO_DOUBLE 11

// A complex number of two `float`s.
#define UNISONO_COMPLEX_FLOAT 12

// A complex number of two `double`s.
#define UNISONO_COMPLEX_DOUBLE 13

// `bool` (`_Bool`): for messages, and collectives that do not reduce.
#define UNISONO_BOOL 14

// `char`: for messages, and collectives that do not reduce.
#define UNISONO_CHAR 15

// left + right; integers wrap.
#define UNISONO_SUM 1

// left × right; integers wrap.
#define UNISONO_PRODUCT 2

// The lesser one.
#define UNISONO_MIN 3

// The greater one.
#define UNISONO_MAX 4

// 1 where both are not 0, else 0.
#define UNISONO_LOGICAL_AND 5

// 1 where one is not 0, else 0.
#define UNISONO_LOGICAL_OR 6

// 1 where exactly one is not 0, else 0.
#define UNISONO_LOGICAL_XOR 7

// left & right.
#define UNISONO_BITWISE_AND 8

// left | right.
#define UNISONO_BITWISE_OR 9

// left ^ right.
#define UNISONO_BITWISE_XOR 10

// The right operand: an update of a window stores it. Only for windows.
#define UNISONO_REPLACE 11

// The left operand: an update of a window reads it. Only for windows.
#define UNISONO_NO_OP 12

// No request: complete at once, and whenever it is waited for.
#define UNISONO_REQUEST_NULL 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a key. `copy` may be NULL: duplicates of a communicator get no value; `delete` may be NULL: values are not freed.
unisono_result unisono_attribute_key_create(unisono_attribute_copy copy,
                                            unisono_attribute_delete delete_,
                                            void *context,
                                            unisono_attribute_key *key);

// Frees a key. Communicators keep its values.
unisono_result unisono_attribute_key_free(unisono_attribute_key key);

// Attaches a value to a communicator, instead of the one of that key, if there is one, which is freed.
unisono_result unisono_set_attribute(unisono_communicator communicator, unisono_attribute_key key, void *value);

// Stores the value of a key; without one `*found` is false, and the value NULL.
unisono_result unisono_get_attribute(unisono_communicator communicator,
                                     unisono_attribute_key key,
                                     void **value,
                                     bool *found);

// Detaches and frees the value of a key, if there is one.
unisono_result unisono_remove_attribute(unisono_communicator communicator, unisono_attribute_key key);

// Waits until every rank has called this.
unisono_result unisono_barrier(unisono_communicator communicator);

// Copies the root's elements to the buffers of all other ranks.
unisono_result unisono_broadcast(unisono_communicator communicator,
                                 void *data,
                                 size_t count,
                                 unisono_datatype datatype,
                                 uint32_t root);

// Gathers every rank's elements in the root's receive buffer, in rank order. `receive_count` is that of all blocks;
// other ranks' receive buffer is not used.
unisono_result unisono_gather(unisono_communicator communicator,
                              const void *send,
                              size_t send_count,
                              unisono_datatype send_datatype,
                              void *receive,
                              size_t receive_count,
                              unisono_datatype receive_datatype,
                              uint32_t root);

// Copies block i of the root's send buffer to rank i. `send_count` is that of all blocks; other ranks' send buffer is
// not used.
unisono_result unisono_scatter(unisono_communicator communicator,
                               const void *send,
                               size_t send_count,
                               unisono_datatype send_datatype,
                               void *receive,
                               size_t receive_count,
                               unisono_datatype receive_datatype,
                               uint32_t root);

// Gathers every rank's elements in every rank's receive buffer, in rank order. `receive_count` is that of all blocks.
unisono_result unisono_all_gather(unisono_communicator communicator,
                                  const void *send,
                                  size_t send_count,
                                  unisono_datatype send_datatype,
                                  void *receive,
                                  size_t receive_count,
                                  unisono_datatype receive_datatype);

// Copies block j of rank i's send buffer to block i of rank j's receive buffer. Both counts are those of all blocks.
unisono_result unisono_all_to_all(unisono_communicator communicator,
                                  const void *send,
                                  size_t send_count,
                                  unisono_datatype send_datatype,
                                  void *receive,
                                  size_t receive_count,
                                  unisono_datatype receive_datatype);

// Reduces the elements of all ranks to the root.
unisono_result unisono_reduce(unisono_communicator communicator,
                              const void *send,
                              void *receive,
                              size_t count,
                              unisono_datatype datatype,
                              unisono_operation operation,
                              uint32_t root);

// Reduces the elements of all ranks to all ranks, with equal bits.
unisono_result unisono_all_reduce(unisono_communicator communicator,
                                  const void *send,
                                  void *receive,
                                  size_t count,
                                  unisono_datatype datatype,
                                  unisono_operation operation);

// Reduces the elements of ranks 0 to i to rank i.
unisono_result unisono_scan(unisono_communicator communicator,
                            const void *send,
                            void *receive,
                            size_t count,
                            unisono_datatype datatype,
                            unisono_operation operation);

// Reduces the elements of ranks 0 to i - 1 to rank i; rank 0's receive buffer is unchanged.
unisono_result unisono_exclusive_scan(unisono_communicator communicator,
                                      const void *send,
                                      void *receive,
                                      size_t count,
                                      unisono_datatype datatype,
                                      unisono_operation operation);

// Reduces block i of all ranks to rank i. `send_count` is that of all blocks.
unisono_result unisono_reduce_scatter_block(unisono_communicator communicator,
                                            const void *send,
                                            size_t send_count,
                                            void *receive,
                                            size_t receive_count,
                                            unisono_datatype datatype,
                                            unisono_operation operation);

// Gathers every rank's elements in its block of the root's receive buffer.
unisono_result unisono_gather_varcount(unisono_communicator communicator,
                                       const void *send,
                                       size_t send_count,
                                       unisono_datatype send_datatype,
                                       void *receive,
                                       const size_t *receive_counts,
                                       const size_t *receive_displacements,
                                       unisono_datatype receive_datatype,
                                       uint32_t root);

// Copies block i of the root's send buffer, which has `counts[i]` elements from `displacements[i]` on, to rank i.
unisono_result unisono_scatter_varcount(unisono_communicator communicator,
                                        const void *send,
                                        const size_t *send_counts,
                                        const size_t *send_displacements,
                                        unisono_datatype send_datatype,
                                        void *receive,
                                        size_t receive_count,
                                        unisono_datatype receive_datatype,
                                        uint32_t root);

// Gathers every rank's elements in its block of every rank's receive buffer.
unisono_result unisono_all_gather_varcount(unisono_communicator communicator,
                                           const void *send,
                                           size_t send_count,
                                           unisono_datatype send_datatype,
                                           void *receive,
                                           const size_t *receive_counts,
                                           const size_t *receive_displacements,
                                           unisono_datatype receive_datatype);

// Copies block j of rank i's send buffer to block i of rank j's receive buffer.
unisono_result unisono_all_to_all_varcount(unisono_communicator communicator,
                                           const void *send,
                                           const size_t *send_counts,
                                           const size_t *send_displacements,
                                           unisono_datatype send_datatype,
                                           void *receive,
                                           const size_t *receive_counts,
                                           const size_t *receive_displacements,
                                           unisono_datatype receive_datatype);

// Reduces block i of all ranks to rank i.
unisono_result unisono_reduce_scatter_varcount(unisono_communicator communicator,
                                               const void *send,
                                               const size_t *send_counts,
                                               const size_t *send_displacements,
                                               void *receive,
                                               size_t receive_count,
                                               unisono_datatype datatype,
                                               unisono_operation operation);

// Sends elements to every neighbour, and receives those of the n-th source as block n. `receive_count` is that of all
// blocks; blocks past the edge of a grid are unchanged. The datatypes are contiguous.
unisono_result unisono_neighbour_all_gather(unisono_communicator communicator,
                                            const void *send,
                                            size_t send_count,
                                            unisono_datatype send_datatype,
                                            void *receive,
                                            size_t receive_count,
                                            unisono_datatype receive_datatype);

// Sends block n to the n-th neighbour that this rank sends to, and receives from the n-th source as block n. Both counts
// are those of all blocks; blocks past the edge of a grid are unchanged. The datatypes are contiguous.
unisono_result unisono_neighbour_all_to_all(unisono_communicator communicator,
                                            const void *send,
                                            size_t send_count,
                                            unisono_datatype send_datatype,
                                            void *receive,
                                            size_t receive_count,
                                            unisono_datatype receive_datatype);

// As `unisono_neighbour_all_to_all`; each block has a count, an offset in bytes and a datatype of its own.
unisono_result unisono_neighbour_all_to_all_w(unisono_communicator communicator,
                                              const void *send,
                                              const size_t *send_counts,
                                              const ptrdiff_t *send_offsets,
                                              const unisono_datatype *send_datatypes,
                                              void *receive,
                                              const size_t *receive_counts,
                                              const ptrdiff_t *receive_offsets,
                                              const unisono_datatype *receive_datatypes);

// As `unisono_all_to_all`; each block has a count, an offset in bytes and a datatype of its own.
unisono_result unisono_all_to_all_w(unisono_communicator communicator,
                                    const void *send,
                                    const size_t *send_counts,
                                    const ptrdiff_t *send_offsets,
                                    const unisono_datatype *send_datatypes,
                                    void *receive,
                                    const size_t *receive_counts,
                                    const ptrdiff_t *receive_offsets,
                                    const unisono_datatype *receive_datatypes);

// Starts `unisono_neighbour_all_gather`.
unisono_result unisono_immediate_neighbour_all_gather(unisono_communicator communicator,
                                                      const void *send,
                                                      size_t send_count,
                                                      unisono_datatype send_datatype,
                                                      void *receive,
                                                      size_t receive_count,
                                                      unisono_datatype receive_datatype,
                                                      unisono_request *request);

// Starts `unisono_neighbour_all_to_all`.
unisono_result unisono_immediate_neighbour_all_to_all(unisono_communicator communicator,
                                                      const void *send,
                                                      size_t send_count,
                                                      unisono_datatype send_datatype,
                                                      void *receive,
                                                      size_t receive_count,
                                                      unisono_datatype receive_datatype,
                                                      unisono_request *request);

// Starts `unisono_neighbour_all_to_all_w`.
unisono_result unisono_immediate_neighbour_all_to_all_w(unisono_communicator communicator,
                                                        const void *send,
                                                        const size_t *send_counts,
                                                        const ptrdiff_t *send_offsets,
                                                        const unisono_datatype *send_datatypes,
                                                        void *receive,
                                                        const size_t *receive_counts,
                                                        const ptrdiff_t *receive_offsets,
                                                        const unisono_datatype *receive_datatypes,
                                                        unisono_request *request);

// Starts `unisono_all_to_all_w`.
unisono_result unisono_immediate_all_to_all_w(unisono_communicator communicator,
                                              const void *send,
                                              const size_t *send_counts,
                                              const ptrdiff_t *send_offsets,
                                              const unisono_datatype *send_datatypes,
                                              void *receive,
                                              const size_t *receive_counts,
                                              const ptrdiff_t *receive_offsets,
                                              const unisono_datatype *receive_datatypes,
                                              unisono_request *request);

// Prepares `unisono_neighbour_all_gather`, which `unisono_start` starts.
unisono_result unisono_persistent_neighbour_all_gather(unisono_communicator communicator,
                                                       const void *send,
                                                       size_t send_count,
                                                       unisono_datatype send_datatype,
                                                       void *receive,
                                                       size_t receive_count,
                                                       unisono_datatype receive_datatype,
                                                       unisono_request *request);

// Prepares `unisono_neighbour_all_to_all`, which `unisono_start` starts.
unisono_result unisono_persistent_neighbour_all_to_all(unisono_communicator communicator,
                                                       const void *send,
                                                       size_t send_count,
                                                       unisono_datatype send_datatype,
                                                       void *receive,
                                                       size_t receive_count,
                                                       unisono_datatype receive_datatype,
                                                       unisono_request *request);

// Prepares `unisono_neighbour_all_to_all_w`, which `unisono_start` starts.
unisono_result unisono_persistent_neighbour_all_to_all_w(unisono_communicator communicator,
                                                         const void *send,
                                                         const size_t *send_counts,
                                                         const ptrdiff_t *send_offsets,
                                                         const unisono_datatype *send_datatypes,
                                                         void *receive,
                                                         const size_t *receive_counts,
                                                         const ptrdiff_t *receive_offsets,
                                                         const unisono_datatype *receive_datatypes,
                                                         unisono_request *request);

// Prepares `unisono_all_to_all_w`, which `unisono_start` starts.
unisono_result unisono_persistent_all_to_all_w(unisono_communicator communicator,
                                               const void *send,
                                               const size_t *send_counts,
                                               const ptrdiff_t *send_offsets,
                                               const unisono_datatype *send_datatypes,
                                               void *receive,
                                               const size_t *receive_counts,
                                               const ptrdiff_t *receive_offsets,
                                               const unisono_datatype *receive_datatypes,
                                               unisono_request *request);

// Starts `unisono_barrier`.
unisono_result unisono_immediate_barrier(unisono_communicator communicator, unisono_request *request);

// Starts `unisono_broadcast`.
unisono_result unisono_immediate_broadcast(unisono_communicator communicator,
                                           void *data,
                                           size_t count,
                                           unisono_datatype datatype,
                                           uint32_t root,
                                           unisono_request *request);

// Starts `unisono_gather`.
unisono_result unisono_immediate_gather(unisono_communicator communicator,
                                        const void *send,
                                        size_t send_count,
                                        unisono_datatype send_datatype,
                                        void *receive,
                                        size_t receive_count,
                                        unisono_datatype receive_datatype,
                                        uint32_t root,
                                        unisono_request *request);

// Starts `unisono_scatter`.
unisono_result unisono_immediate_scatter(unisono_communicator communicator,
                                         const void *send,
                                         size_t send_count,
                                         unisono_datatype send_datatype,
                                         void *receive,
                                         size_t receive_count,
                                         unisono_datatype receive_datatype,
                                         uint32_t root,
                                         unisono_request *request);

// Starts `unisono_all_gather`.
unisono_result unisono_immediate_all_gather(unisono_communicator communicator,
                                            const void *send,
                                            size_t send_count,
                                            unisono_datatype send_datatype,
                                            void *receive,
                                            size_t receive_count,
                                            unisono_datatype receive_datatype,
                                            unisono_request *request);

// Starts `unisono_all_to_all`.
unisono_result unisono_immediate_all_to_all(unisono_communicator communicator,
                                            const void *send,
                                            size_t send_count,
                                            unisono_datatype send_datatype,
                                            void *receive,
                                            size_t receive_count,
                                            unisono_datatype receive_datatype,
                                            unisono_request *request);

// Starts `unisono_reduce`.
unisono_result unisono_immediate_reduce(unisono_communicator communicator,
                                        const void *send,
                                        void *receive,
                                        size_t count,
                                        unisono_datatype datatype,
                                        unisono_operation operation,
                                        uint32_t root,
                                        unisono_request *request);

// Starts `unisono_all_reduce`.
unisono_result unisono_immediate_all_reduce(unisono_communicator communicator,
                                            const void *send,
                                            void *receive,
                                            size_t count,
                                            unisono_datatype datatype,
                                            unisono_operation operation,
                                            unisono_request *request);

// Starts `unisono_scan`.
unisono_result unisono_immediate_scan(unisono_communicator communicator,
                                      const void *send,
                                      void *receive,
                                      size_t count,
                                      unisono_datatype datatype,
                                      unisono_operation operation,
                                      unisono_request *request);

// Starts `unisono_exclusive_scan`.
unisono_result unisono_immediate_exclusive_scan(unisono_communicator communicator,
                                                const void *send,
                                                void *receive,
                                                size_t count,
                                                unisono_datatype datatype,
                                                unisono_operation operation,
                                                unisono_request *request);

// Starts `unisono_reduce_scatter_block`.
unisono_result unisono_immediate_reduce_scatter_block(unisono_communicator communicator,
                                                      const void *send,
                                                      size_t send_count,
                                                      void *receive,
                                                      size_t receive_count,
                                                      unisono_datatype datatype,
                                                      unisono_operation operation,
                                                      unisono_request *request);

// Starts `unisono_gather_varcount`.
unisono_result unisono_immediate_gather_varcount(unisono_communicator communicator,
                                                 const void *send,
                                                 size_t send_count,
                                                 unisono_datatype send_datatype,
                                                 void *receive,
                                                 const size_t *receive_counts,
                                                 const size_t *receive_displacements,
                                                 unisono_datatype receive_datatype,
                                                 uint32_t root,
                                                 unisono_request *request);

// Starts `unisono_scatter_varcount`.
unisono_result unisono_immediate_scatter_varcount(unisono_communicator communicator,
                                                  const void *send,
                                                  const size_t *send_counts,
                                                  const size_t *send_displacements,
                                                  unisono_datatype send_datatype,
                                                  void *receive,
                                                  size_t receive_count,
                                                  unisono_datatype receive_datatype,
                                                  uint32_t root,
                                                  unisono_request *request);

// Starts `unisono_all_gather_varcount`.
unisono_result unisono_immediate_all_gather_varcount(unisono_communicator communicator,
                                                     const void *send,
                                                     size_t send_count,
                                                     unisono_datatype send_datatype,
                                                     void *receive,
                                                     const size_t *receive_counts,
                                                     const size_t *receive_displacements,
                                                     unisono_datatype receive_datatype,
                                                     unisono_request *request);

// Starts `unisono_all_to_all_varcount`.
unisono_result unisono_immediate_all_to_all_varcount(unisono_communicator communicator,
                                                     const void *send,
                                                     const size_t *send_counts,
                                                     const size_t *send_displacements,
                                                     unisono_datatype send_datatype,
                                                     void *receive,
                                                     const size_t *receive_counts,
                                                     const size_t *receive_displacements,
                                                     unisono_datatype receive_datatype,
                                                     unisono_request *request);

// Starts `unisono_reduce_scatter_varcount`.
unisono_result unisono_immediate_reduce_scatter_varcount(unisono_communicator communicator,
                                                         const void *send,
                                                         const size_t *send_counts,
                                                         const size_t *send_displacements,
                                                         void *receive,
                                                         size_t receive_count,
                                                         unisono_datatype datatype,
                                                         unisono_operation operation,
                                                         unisono_request *request);

// Prepares `unisono_barrier`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_barrier(unisono_communicator communicator, unisono_request *request);

// Prepares `unisono_broadcast`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_broadcast(unisono_communicator communicator,
                                            void *data,
                                            size_t count,
                                            unisono_datatype datatype,
                                            uint32_t root,
                                            unisono_request *request);

// Prepares `unisono_gather`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_gather(unisono_communicator communicator,
                                         const void *send,
                                         size_t send_count,
                                         unisono_datatype send_datatype,
                                         void *receive,
                                         size_t receive_count,
                                         unisono_datatype receive_datatype,
                                         uint32_t root,
                                         unisono_request *request);

// Prepares `unisono_scatter`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_scatter(unisono_communicator communicator,
                                          const void *send,
                                          size_t send_count,
                                          unisono_datatype send_datatype,
                                          void *receive,
                                          size_t receive_count,
                                          unisono_datatype receive_datatype,
                                          uint32_t root,
                                          unisono_request *request);

// Prepares `unisono_all_gather`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_all_gather(unisono_communicator communicator,
                                             const void *send,
                                             size_t send_count,
                                             unisono_datatype send_datatype,
                                             void *receive,
                                             size_t receive_count,
                                             unisono_datatype receive_datatype,
                                             unisono_request *request);

// Prepares `unisono_all_to_all`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_all_to_all(unisono_communicator communicator,
                                             const void *send,
                                             size_t send_count,
                                             unisono_datatype send_datatype,
                                             void *receive,
                                             size_t receive_count,
                                             unisono_datatype receive_datatype,
                                             unisono_request *request);

// Prepares `unisono_reduce`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_reduce(unisono_communicator communicator,
                                         const void *send,
                                         void *receive,
                                         size_t count,
                                         unisono_datatype datatype,
                                         unisono_operation operation,
                                         uint32_t root,
                                         unisono_request *request);

// Prepares `unisono_all_reduce`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_all_reduce(unisono_communicator communicator,
                                             const void *send,
                                             void *receive,
                                             size_t count,
                                             unisono_datatype datatype,
                                             unisono_operation operation,
                                             unisono_request *request);

// Prepares `unisono_scan`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_scan(unisono_communicator communicator,
                                       const void *send,
                                       void *receive,
                                       size_t count,
                                       unisono_datatype datatype,
                                       unisono_operation operation,
                                       unisono_request *request);

// Prepares `unisono_exclusive_scan`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_exclusive_scan(unisono_communicator communicator,
                                                 const void *send,
                                                 void *receive,
                                                 size_t count,
                                                 unisono_datatype datatype,
                                                 unisono_operation operation,
                                                 unisono_request *request);

// Prepares `unisono_reduce_scatter_block`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_reduce_scatter_block(unisono_communicator communicator,
                                                       const void *send,
                                                       size_t send_count,
                                                       void *receive,
                                                       size_t receive_count,
                                                       unisono_datatype datatype,
                                                       unisono_operation operation,
                                                       unisono_request *request);

// Prepares `unisono_gather_varcount`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_gather_varcount(unisono_communicator communicator,
                                                  const void *send,
                                                  size_t send_count,
                                                  unisono_datatype send_datatype,
                                                  void *receive,
                                                  const size_t *receive_counts,
                                                  const size_t *receive_displacements,
                                                  unisono_datatype receive_datatype,
                                                  uint32_t root,
                                                  unisono_request *request);

// Prepares `unisono_scatter_varcount`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_scatter_varcount(unisono_communicator communicator,
                                                   const void *send,
                                                   const size_t *send_counts,
                                                   const size_t *send_displacements,
                                                   unisono_datatype send_datatype,
                                                   void *receive,
                                                   size_t receive_count,
                                                   unisono_datatype receive_datatype,
                                                   uint32_t root,
                                                   unisono_request *request);

// Prepares `unisono_all_gather_varcount`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_all_gather_varcount(unisono_communicator communicator,
                                                      const void *send,
                                                      size_t send_count,
                                                      unisono_datatype send_datatype,
                                                      void *receive,
                                                      const size_t *receive_counts,
                                                      const size_t *receive_displacements,
                                                      unisono_datatype receive_datatype,
                                                      unisono_request *request);

// Prepares `unisono_all_to_all_varcount`: the buffers are fixed, and are the library's between a start and its end.
unisono_result unisono_persistent_all_to_all_varcount(unisono_communicator communicator,
                                                      const void *send,
                                                      const size_t *send_counts,
                                                      const size_t *send_displacements,
                                                      unisono_datatype send_datatype,
                                                      void *receive,
                                                      const size_t *receive_counts,
                                                      const size_t *receive_displacements,
                                                      unisono_datatype receive_datatype,
                                                      unisono_request *request);

// Prepares `unisono_reduce_scatter_varcount`: the buffers are fixed, and are the library's between a start and its
// end.
unisono_result unisono_persistent_reduce_scatter_varcount(unisono_communicator communicator,
                                                          const void *send,
                                                          const size_t *send_counts,
                                                          const size_t *send_displacements,
                                                          void *receive,
                                                          size_t receive_count,
                                                          unisono_datatype datatype,
                                                          unisono_operation operation,
                                                          unisono_request *request);

// Joins the job that the environment (`UNISONO_*`) describes, else that of another starter (`mpiexec.hydra`, `srun`,
// `prterun`), else a job of one process. `settings` is NULL or a list of
// texts "NAME=VALUE" that ends with NULL and wins over the environment, such as "PROGRESS=thread". Stores the
// communicator of all ranks.
unisono_result unisono_join(const char *const *settings, unisono_communicator *world);

// Ends this process's part in the job: waits until everything that was sent has arrived, and until every live rank has
// called this. All requests on `world` must have been completed or freed before (`UNISONO_ERROR_UNDER_WAY`).
unisono_result unisono_finish(unisono_communicator world);

// Frees a communicator; not the one that was joined. Requests on it go on; buffered sends have left before it returns.
unisono_result unisono_communicator_free(unisono_communicator communicator);

// The number of this rank.
unisono_result unisono_rank(unisono_communicator communicator, uint32_t *rank);

// The number of ranks.
unisono_result unisono_size(unisono_communicator communicator, uint32_t *size);

// The number in the job of a rank of the communicator.
unisono_result unisono_world_rank(unisono_communicator communicator, uint32_t rank, uint32_t *world_rank);

// Whether messages to a rank go through shared memory.
unisono_result unisono_shares_memory(unisono_communicator communicator, uint32_t rank, bool *shares);

// Bytes of the largest message that is sent without waiting for its receive.
unisono_result unisono_eager_limit(unisono_communicator communicator, size_t *bytes);

// Makes a communicator of the same ranks. Collective.
unisono_result unisono_duplicate(unisono_communicator communicator, unisono_communicator *made);

// Makes communicators of the ranks that pass the same colour, ordered by key and then by rank. A rank with a negative
// colour gets `UNISONO_COMMUNICATOR_NULL`. Collective.
unisono_result unisono_split(unisono_communicator communicator, int64_t color, int32_t key, unisono_communicator *made);

// Makes communicators of the ranks that share a unit. A rank whose processors are in several units gets one of itself.
// Collective.
unisono_result unisono_split_by_unit(unisono_communicator communicator, unisono_unit unit, unisono_communicator *made);

// Makes a communicator of these ranks, in this order; a rank outside of it gets `UNISONO_COMMUNICATOR_NULL`.
// Collective: all ranks of the communicator call it, each with the group that it belongs to.
unisono_result unisono_subgroup(unisono_communicator communicator,
                                size_t count,
                                const uint32_t *ranks,
                                unisono_communicator *made);

// Revokes a communicator for all its ranks: what is under way on it fails, and what is started. Not collective.
unisono_result unisono_revoke(unisono_communicator communicator);

// Makes a communicator of the live ranks. Every live rank calls it.
unisono_result unisono_shrink(unisono_communicator communicator, unisono_communicator *made);

// Agrees with all live ranks on the bitwise AND of `*flags`. Every live rank calls it.
unisono_result unisono_agree(unisono_communicator communicator, uint64_t *flags);

// Stores the numbers of up to `most` ranks that are known to have failed or finished, and the number of all of them.
unisono_result unisono_failed(unisono_communicator communicator, uint32_t *ranks, size_t most, size_t *count);

// Makes progress once. In the mode "engine", the default, nothing is received or resent but within calls of the
// library. `moved` may be NULL.
unisono_result unisono_progress(unisono_communicator communicator, bool *moved);

// A file descriptor to poll for input (`poll`, `epoll`): when it is readable, call `unisono_progress`. It stays the
// library's: do not read or close it. Call `unisono_arm` before each sleep.
unisono_result unisono_event_fd(unisono_communicator world, int *fd);

// Makes progress once and prepares the descriptor for a sleep. `*armed` is false if there is more to do: call
// `unisono_progress` instead of sleeping. While ranks share memory, which signals no descriptor, it becomes readable
// after at most 2 ms.
unisono_result unisono_arm(unisono_communicator world, bool *armed);

// Reads the counters.
unisono_result unisono_read_counters(unisono_communicator world, unisono_counters *counters);

// Allocates `bytes` zero bytes, aligned to 64. A message that is sent from it to a rank of this node is copied once, by
// the receiver. Stores its address, and a handle that frees it.
unisono_result unisono_allocate(unisono_communicator communicator,
                                size_t bytes,
                                void **address,
                                unisono_memory *memory);

// Frees memory of `unisono_allocate`, which no request uses any more.
unisono_result unisono_free(unisono_memory memory);

// `count` elements, one after the other.
unisono_result unisono_datatype_contiguous(size_t count, unisono_datatype element, unisono_datatype *datatype);

// `count` blocks of `length` elements, each `stride` elements after the previous one.
unisono_result unisono_datatype_vector(size_t count,
                                       size_t length,
                                       ptrdiff_t stride,
                                       unisono_datatype element,
                                       unisono_datatype *datatype);

// As `unisono_datatype_vector`, with a stride in bytes.
unisono_result unisono_datatype_hvector(size_t count,
                                        size_t length,
                                        ptrdiff_t stride,
                                        unisono_datatype element,
                                        unisono_datatype *datatype);

// `count` blocks: block i has `lengths[i]` elements, `displacements[i]` elements from the beginning.
unisono_result unisono_datatype_indexed(size_t count,
                                        const size_t *lengths,
                                        const ptrdiff_t *displacements,
                                        unisono_datatype element,
                                        unisono_datatype *datatype);

// As `unisono_datatype_indexed`, with displacements in bytes.
unisono_result unisono_datatype_hindexed(size_t count,
                                         const size_t *lengths,
                                         const ptrdiff_t *displacements,
                                         unisono_datatype element,
                                         unisono_datatype *datatype);

// `count` blocks of `length` elements, `displacements[i]` elements from the beginning.
unisono_result unisono_datatype_indexed_block(size_t count,
                                              size_t length,
                                              const ptrdiff_t *displacements,
                                              unisono_datatype element,
                                              unisono_datatype *datatype);

// A structure: field i has `lengths[i]` elements of `elements[i]`, `displacements[i]` bytes from the beginning.
unisono_result unisono_datatype_struct(size_t count,
                                       const size_t *lengths,
                                       const ptrdiff_t *displacements,
                                       const unisono_datatype *elements,
                                       unisono_datatype *datatype);

// A block of an array of `dimensions` dimensions: `lengths[i]` of `sizes[i]` elements from `starts[i]` on. In
// row-major order (C) the last index varies fastest, else (Fortran) the first.
unisono_result unisono_datatype_subarray(size_t dimensions,
                                         const size_t *sizes,
                                         const size_t *lengths,
                                         const size_t *starts,
                                         bool row_major,
                                         unisono_datatype element,
                                         unisono_datatype *datatype);

// The same bytes with another lower bound and extent, in bytes: repeated elements are `extent` bytes apart.
unisono_result unisono_datatype_resized(unisono_datatype element,
                                        ptrdiff_t lower_bound,
                                        ptrdiff_t extent,
                                        unisono_datatype *datatype);

// Frees a datatype. What was started with it goes on, and so do datatypes that were made of it.
unisono_result unisono_datatype_free(unisono_datatype datatype);

// Number of bytes that a datatype transfers.
unisono_result unisono_datatype_size(unisono_datatype datatype, size_t *size);

// The lower bound of a datatype, and the bytes from one element to the next.
unisono_result unisono_datatype_extent(unisono_datatype datatype, ptrdiff_t *lower_bound, ptrdiff_t *extent);

// Offset of a datatype's first byte, and the bytes from there to its last one.
unisono_result unisono_datatype_true_extent(unisono_datatype datatype, ptrdiff_t *lower_bound, ptrdiff_t *extent);

// Copies the bytes of `count` elements from their `offset`th byte on to `packed`, at most `size`. Stores how many were
// copied.
unisono_result unisono_pack(const void *buffer,
                            size_t count,
                            unisono_datatype datatype,
                            size_t offset,
                            void *packed,
                            size_t size,
                            size_t *copied);

// Copies `size` packed bytes to the bytes of `count` elements from their `offset`th byte on. Stores how many were
// copied.
unisono_result unisono_unpack(const void *packed,
                              size_t size,
                              void *buffer,
                              size_t count,
                              unisono_datatype datatype,
                              size_t offset,
                              size_t *copied);

// Number of elements of a datatype in a message.
unisono_result unisono_count(const unisono_status *status, unisono_datatype datatype, size_t *count);

// Sends `count` elements and waits until the buffer is free: a short message is copied, a longer one waits for its
// receive.
unisono_result unisono_send(unisono_communicator communicator,
                            const void *buffer,
                            size_t count,
                            unisono_datatype datatype,
                            uint32_t to,
                            uint32_t tag);

// As `unisono_send`, and waits until a receive has matched the message.
unisono_result unisono_synchronous_send(unisono_communicator communicator,
                                        const void *buffer,
                                        size_t count,
                                        unisono_datatype datatype,
                                        uint32_t to,
                                        uint32_t tag);

// Receives up to `count` elements of a message from `source` (or `UNISONO_ANY_SOURCE`) with `tag` (or
// `UNISONO_ANY_TAG`). `status` may be NULL.
unisono_result unisono_receive(unisono_communicator communicator,
                               void *buffer,
                               size_t count,
                               unisono_datatype datatype,
                               uint32_t source,
                               uint32_t tag,
                               unisono_status *status);

// Sends one message and receives another at the same time. `status` may be NULL.
unisono_result unisono_send_receive(unisono_communicator communicator,
                                    const void *send_buffer,
                                    size_t send_count,
                                    unisono_datatype send_datatype,
                                    uint32_t to,
                                    uint32_t send_tag,
                                    void *receive_buffer,
                                    size_t receive_count,
                                    unisono_datatype receive_datatype,
                                    uint32_t source,
                                    uint32_t receive_tag,
                                    unisono_status *status);

// Starts a send.
unisono_result unisono_immediate_send(unisono_communicator communicator,
                                      const void *buffer,
                                      size_t count,
                                      unisono_datatype datatype,
                                      uint32_t to,
                                      uint32_t tag,
                                      unisono_request *request);

// Starts a send whose request is complete when a receive has matched the message.
unisono_result unisono_immediate_synchronous_send(unisono_communicator communicator,
                                                  const void *buffer,
                                                  size_t count,
                                                  unisono_datatype datatype,
                                                  uint32_t to,
                                                  uint32_t tag,
                                                  unisono_request *request);

// Starts a receive.
unisono_result unisono_immediate_receive(unisono_communicator communicator,
                                         void *buffer,
                                         size_t count,
                                         unisono_datatype datatype,
                                         uint32_t source,
                                         uint32_t tag,
                                         unisono_request *request);

// Prepares `unisono_send`: the buffer is fixed, and is the library's between a start and its end.
unisono_result unisono_persistent_send(unisono_communicator communicator,
                                       const void *buffer,
                                       size_t count,
                                       unisono_datatype datatype,
                                       uint32_t to,
                                       uint32_t tag,
                                       unisono_request *request);

// Prepares `unisono_synchronous_send`: the buffer is fixed, and is the library's between a start and its end.
unisono_result unisono_persistent_synchronous_send(unisono_communicator communicator,
                                                   const void *buffer,
                                                   size_t count,
                                                   unisono_datatype datatype,
                                                   uint32_t to,
                                                   uint32_t tag,
                                                   unisono_request *request);

// Prepares `unisono_receive`: the buffer is fixed, and is the library's between a start and its end.
unisono_result unisono_persistent_receive(unisono_communicator communicator,
                                          void *buffer,
                                          size_t count,
                                          unisono_datatype datatype,
                                          uint32_t source,
                                          uint32_t tag,
                                          unisono_request *request);

// Attaches `bytes` bytes for buffered sends on the communicator, which has one such buffer at a time. A message takes
// its length in adjacent bytes, at least one, from when it is sent until it and all earlier ones have left.
unisono_result unisono_attach_buffer(unisono_communicator communicator, void *buffer, size_t bytes);

// Waits until all messages have left the communicator's buffer, and detaches it; also if one of them failed, which is
// the result then.
unisono_result unisono_detach_buffer(unisono_communicator communicator);

// As `unisono_send`, by a copy in the communicator's buffer: returns whether or not a receive is posted. Without room,
// or without a buffer, nothing is sent: `UNISONO_ERROR_RESOURCES`.
unisono_result unisono_buffered_send(unisono_communicator communicator,
                                     const void *buffer,
                                     size_t count,
                                     unisono_datatype datatype,
                                     uint32_t to,
                                     uint32_t tag);

// Waits for a message that a receive with these arguments would match. `status` may be NULL.
unisono_result unisono_probe(unisono_communicator communicator, uint32_t source, uint32_t tag, unisono_status *status);

// Makes progress once; `*found` says whether there is such a message. `status` may be NULL.
unisono_result unisono_immediate_probe(unisono_communicator communicator,
                                       uint32_t source,
                                       uint32_t tag,
                                       bool *found,
                                       unisono_status *status);

// Waits for a message as `unisono_probe`, and removes it. `status` may be NULL.
unisono_result unisono_matched_probe(unisono_communicator communicator,
                                     uint32_t source,
                                     uint32_t tag,
                                     unisono_message *message,
                                     unisono_status *status);

// As `unisono_immediate_probe`, and removes the message.
unisono_result unisono_immediate_matched_probe(unisono_communicator communicator,
                                               uint32_t source,
                                               uint32_t tag,
                                               bool *found,
                                               unisono_message *message,
                                               unisono_status *status);

// Receives a message that a matched probe has removed. Its handle is freed. `status` may be NULL.
unisono_result unisono_receive_message(unisono_message message,
                                       void *buffer,
                                       size_t count,
                                       unisono_datatype datatype,
                                       unisono_status *status);

// Makes an operation of a function. If it does not commute, elements are combined in rank order. `context` is passed to
// each call.
unisono_result unisono_operation_create(unisono_function function,
                                        bool commutes,
                                        void *context,
                                        unisono_operation *operation);

// Makes an operation that gives the same bits from run to run, for any placement of ranks, device and algorithm.
unisono_result unisono_operation_reproducible(unisono_operation operation, unisono_operation *made);

// Frees an operation. What was started with it goes on.
unisono_result unisono_operation_free(unisono_operation operation);

// Allocates `bytes` zero bytes as a region, with rights of `UNISONO_RIGHT_READ`, `_WRITE`, `_ATOMIC` and `_ONCE` together.
// Not collective.
unisono_result unisono_allocate_region(unisono_communicator communicator,
                                       size_t bytes,
                                       uint32_t rights,
                                       unisono_region *region);

// Makes `bytes` bytes of the program's memory a region. The memory stays valid until the region is revoked. Not
// collective.
unisono_result unisono_register_region(unisono_communicator communicator,
                                       void *start,
                                       size_t bytes,
                                       uint32_t rights,
                                       unisono_region *region);

// Stores the key of a region, for the ranks that may access it.
unisono_result unisono_region_key(unisono_region region, unisono_rkey *key);

// Stores the address of a region, and its bytes. Other ranks may write there at any time.
unisono_result unisono_region_memory(unisono_region region, void **start, size_t *bytes);

// Ends the access of other ranks, and waits until nobody uses the memory, which is freed if it was allocated. Later
// accesses are `UNISONO_ERROR_REVOKED`.
unisono_result unisono_region_revoke(unisono_region region);

// The region of a rank of the communicator that the key was made for, until `unisono_remote_region_free`. No message is
// sent: whether the key is good, the first access shows.
unisono_result unisono_import_region(unisono_communicator communicator,
                                     const unisono_rkey *key,
                                     unisono_remote_region *region);

// Frees what an import has made. Operations that are under way go on.
unisono_result unisono_remote_region_free(unisono_remote_region region);

// Copies elements to a region, from byte `offset` on. Their memory can be used again when this returns.
unisono_result unisono_region_put(unisono_remote_region region,
                                  const void *data,
                                  size_t count,
                                  unisono_datatype datatype,
                                  size_t offset);

// Copies elements from a region, from byte `offset` on, and waits for them.
unisono_result unisono_region_get(unisono_remote_region region,
                                  void *data,
                                  size_t count,
                                  unisono_datatype datatype,
                                  size_t offset);

// Combines the elements of a region, from byte `offset` on, with these, each atomically. The operation is a predefined
// one, `UNISONO_REPLACE` among them.
unisono_result unisono_region_accumulate(unisono_remote_region region,
                                         const void *data,
                                         size_t count,
                                         unisono_datatype datatype,
                                         unisono_operation operation,
                                         size_t offset);

// As `unisono_region_accumulate`; stores the old elements in `old`, which has as many, and waits for them. With one
// element it is a fetch-and-op; with `UNISONO_NO_OP` an atomic read.
unisono_result unisono_region_get_accumulate(unisono_remote_region region,
                                             const void *data,
                                             void *old,
                                             size_t count,
                                             unisono_datatype datatype,
                                             unisono_operation operation,
                                             size_t offset);

// Stores `desired` in an element of a region if that equals `expected`, atomically; stores its old value in `old`. The
// datatype has 1, 2, 4 or 8 bytes, which are compared.
unisono_result unisono_region_compare_and_swap(unisono_remote_region region,
                                               const void *expected,
                                               const void *desired,
                                               void *old,
                                               unisono_datatype datatype,
                                               size_t offset);

// Waits until all operations through this import of a region are done there.
unisono_result unisono_region_flush(unisono_remote_region region);

// As `unisono_region_put`, with a request, which is complete when the target has received the elements. They are there
// after a flush.
unisono_result unisono_region_request_put(unisono_remote_region region,
                                          const void *data,
                                          size_t count,
                                          unisono_datatype datatype,
                                          size_t offset,
                                          unisono_request *request);

// As `unisono_region_get`, with a request. The elements are in the buffer when it is complete.
unisono_result unisono_region_request_get(unisono_remote_region region,
                                          void *data,
                                          size_t count,
                                          unisono_datatype datatype,
                                          size_t offset,
                                          unisono_request *request);

// Waits for a request, and frees it and sets `*request` to `UNISONO_REQUEST_NULL` unless it is persistent; also if it
// failed. `status` may be NULL.
unisono_result unisono_wait(unisono_request *request, unisono_status *status);

// Makes progress once. If the request is complete, `*done` is true and the rest is as of `unisono_wait`.
unisono_result unisono_test(unisono_request *request, bool *done, unisono_status *status);

// Withdraws a receive that has matched no message: then `*cancelled` is true, and the request complete.
unisono_result unisono_cancel(unisono_request request, bool *cancelled);

// Frees a request and sets `*request` to `UNISONO_REQUEST_NULL`. If it is not complete it is waited for: its memory is
// the program's afterwards.
unisono_result unisono_request_free(unisono_request *request);

// Starts a persistent message or collective, which is not under way.
unisono_result unisono_start(unisono_request request);

// Starts persistent requests, in order. At the first failure it returns, `*failed` is its index, and the requests from
// it on are not started; else `*failed` is `count`. `failed` may be NULL.
unisono_result unisono_start_all(size_t count, const unisono_request *requests, size_t *failed);

// Waits for all requests, in order. At the first failure it returns, `*failed` is its index, and the requests after it
// stay as they are; else `*failed` is `count`. `statuses` and `failed` may be NULL.
unisono_result unisono_wait_all(size_t count, unisono_request *requests, unisono_status *statuses, size_t *failed);

// Makes progress. If all requests are complete, `*done` is true and the rest is as of `unisono_wait_all`.
unisono_result unisono_test_all(size_t count, unisono_request *requests, bool *done, unisono_status *statuses);

// Waits until a request is complete; of several it takes the first. `*index` is its index, and the rest as of
// `unisono_wait`; `*index` is `count` if all are `UNISONO_REQUEST_NULL`. Persistent requests that are not under way
// count as complete.
unisono_result unisono_wait_any(size_t count, unisono_request *requests, size_t *index, unisono_status *status);

// Makes progress. As `unisono_wait_any` if a request is complete, or all are `UNISONO_REQUEST_NULL`: then `*done` is
// true.
unisono_result unisono_test_any(size_t count,
                                unisono_request *requests,
                                bool *done,
                                size_t *index,
                                unisono_status *status);

// Waits until a request is complete, and completes all that are. Stores their indices, and their number; 0 if all are
// `UNISONO_REQUEST_NULL`. `statuses` are in the order of `indices`, and may be NULL.
unisono_result unisono_wait_some(size_t count,
                                 unisono_request *requests,
                                 size_t *completed,
                                 size_t *indices,
                                 unisono_status *statuses);

// Whether a request is persistent.
unisono_result unisono_is_persistent(unisono_request request, bool *persistent);

// The text of the calling thread's last error, until its next one. Never NULL.
const char *unisono_error_text(void);

// The rank that the calling thread's last error names, in the communicator's numbers; -1 if it names none.
int64_t unisono_error_rank(void);

// The name of a result. Never NULL.
const char *unisono_result_name(int32_t result);

// Divides a number of ranks among the dimensions of a grid, as evenly as possible, and stores their lengths, the longest
// first.
unisono_result unisono_balanced_grid(uint32_t ranks,
                                     size_t dimensions,
                                     uint32_t *lengths);

// Makes a communicator whose ranks are the points of a grid, in row-major order; the last point of a periodic dimension
// is a neighbour of its first. Ranks beyond the last point get `UNISONO_COMMUNICATOR_NULL`. Collective.
unisono_result unisono_cartesian(unisono_communicator communicator,
                                 size_t dimensions,
                                 const uint32_t *lengths,
                                 const bool *periodic,
                                 unisono_communicator *made);

// Stores the coordinates of a rank in its grid.
unisono_result unisono_coordinates(unisono_communicator communicator, uint32_t rank, uint32_t *coordinates);

// Stores the rank at these coordinates of its grid, which are taken modulo the length of periodic dimensions; -1 outside
// of the grid. `coordinates` has a value for each of `dimensions`.
unisono_result unisono_rank_at(unisono_communicator communicator,
                               size_t dimensions,
                               const int64_t *coordinates,
                               int64_t *rank);

// Stores the ranks that this one receives from and sends to when all data move by `steps` points along a dimension of
// the grid; -1 outside of it.
unisono_result unisono_shift(unisono_communicator communicator,
                             size_t dimension,
                             int64_t steps,
                             int64_t *source,
                             int64_t *destination);

// Makes a communicator of the same ranks in which this rank receives from `sources` and sends to `destinations`, in
// these orders; both ends name an edge, once for each time it exists. Collective.
unisono_result unisono_graph(unisono_communicator communicator,
                             size_t source_count,
                             const uint32_t *sources,
                             size_t destination_count,
                             const uint32_t *destinations,
                             unisono_communicator *made);

// Stores how many neighbours this rank has in a grid or graph: those that it receives from, and those that it sends to.
// In a grid these are the one before and the one behind in each dimension.
unisono_result unisono_neighbour_counts(unisono_communicator communicator, size_t *sources, size_t *destinations);

// Stores the ranks of the neighbours, in their order; -1 past the edge of a grid.
unisono_result unisono_neighbours(unisono_communicator communicator, int64_t *sources, int64_t *destinations);

// Allocates `bytes` zero bytes in each rank, a number that may differ between ranks, as a window. Ranks of a node
// access it directly. Collective.
unisono_result unisono_allocate_window(unisono_communicator communicator, size_t bytes, unisono_window *window);

// Makes a window of `bytes` bytes of the program's memory in each rank, which stays valid until the window is freed.
// All other ranks access it by requests. Collective.
unisono_result unisono_create_window(unisono_communicator communicator,
                                     void *start,
                                     size_t bytes,
                                     unisono_window *window);

// Makes a window to which each rank attaches memory later. Collective.
unisono_result unisono_create_dynamic_window(unisono_communicator communicator, unisono_window *window);

// Attaches memory to a dynamic window, which stays valid until it is detached or the window is freed. Other ranks
// access it by its address.
unisono_result unisono_attach(unisono_window window, void *start, size_t bytes);

// Detaches memory that begins at this address from a dynamic window.
unisono_result unisono_detach(unisono_window window, const void *start);

// Frees a window: waits for all ranks of its communicator. Collective.
unisono_result unisono_window_free(unisono_window window);

// Stores the address of a rank's memory, and its bytes: of this rank, and of ranks of its node whose memory this
// process maps; else NULL. Ranks that use the memory meanwhile are to be synchronised by epochs or a lock.
unisono_result unisono_window_memory(unisono_window window, uint32_t rank, void **start, size_t *bytes);

// Copies elements to the memory of a rank, from byte `offset` on. Their memory can be used again when this returns.
unisono_result unisono_put(unisono_window window,
                           const void *data,
                           size_t count,
                           unisono_datatype datatype,
                           uint32_t rank,
                           size_t offset);

// Copies elements from the memory of a rank, from byte `offset` on, and waits for them.
unisono_result unisono_get(unisono_window window,
                           void *data,
                           size_t count,
                           unisono_datatype datatype,
                           uint32_t rank,
                           size_t offset);

// As `unisono_put`, to `target_count` elements of another datatype there, the first of which is at byte `offset`. They
// have as many bytes, and may have gaps.
unisono_result unisono_put_typed(unisono_window window,
                                 const void *data,
                                 size_t count,
                                 unisono_datatype datatype,
                                 uint32_t rank,
                                 size_t offset,
                                 size_t target_count,
                                 unisono_datatype target_datatype);

// As `unisono_get`, from `target_count` elements of another datatype there, the first of which is at byte `offset`.
unisono_result unisono_get_typed(unisono_window window,
                                 void *data,
                                 size_t count,
                                 unisono_datatype datatype,
                                 uint32_t rank,
                                 size_t offset,
                                 size_t target_count,
                                 unisono_datatype target_datatype);

// As `unisono_accumulate`, into `target_count` elements of another datatype there, the first of which is at byte
// `offset`.
unisono_result unisono_accumulate_typed(unisono_window window,
                                        const void *data,
                                        size_t count,
                                        unisono_datatype datatype,
                                        unisono_operation operation,
                                        uint32_t rank,
                                        size_t offset,
                                        size_t target_count,
                                        unisono_datatype target_datatype);

// Combines the elements in the memory of a rank, from byte `offset` on, with these, each atomically. The operation is a
// predefined one, `UNISONO_REPLACE` among them.
unisono_result unisono_accumulate(unisono_window window,
                                  const void *data,
                                  size_t count,
                                  unisono_datatype datatype,
                                  unisono_operation operation,
                                  uint32_t rank,
                                  size_t offset);

// As `unisono_accumulate`; stores the old elements in `old`, which has as many, and waits for them. With one element it
// is a fetch-and-op; with `UNISONO_NO_OP` an atomic read.
unisono_result unisono_get_accumulate(unisono_window window,
                                      const void *data,
                                      void *old,
                                      size_t count,
                                      unisono_datatype datatype,
                                      unisono_operation operation,
                                      uint32_t rank,
                                      size_t offset);

// Stores `desired` in an element of the memory of a rank if that equals `expected`, atomically; stores its old value in
// `old`. The datatype has 1, 2, 4 or 8 bytes, which are compared.
unisono_result unisono_compare_and_swap(unisono_window window,
                                        const void *expected,
                                        const void *desired,
                                        void *old,
                                        unisono_datatype datatype,
                                        uint32_t rank,
                                        size_t offset);

// Waits until all operations of this rank on the memory of a rank are done there.
unisono_result unisono_flush(unisono_window window, uint32_t rank);

// Waits until all operations of this rank on the window are done.
unisono_result unisono_flush_all(unisono_window window);

// Orders accesses of this rank to its memory of the window, and to that of ranks of its node.
unisono_result unisono_sync(unisono_window window);

// Ends all operations of all ranks on the window, and waits for all ranks. Collective.
unisono_result unisono_fence(unisono_window window);

// Takes the lock of a rank's memory, and waits for it: with others, or as its only holder.
unisono_result unisono_lock(unisono_window window, uint32_t rank, bool is_exclusive);

// Ends the operations of this rank there, and releases the lock, which was taken in this way.
unisono_result unisono_unlock(unisono_window window, uint32_t rank, bool is_exclusive);

// Takes the locks of all ranks, with others.
unisono_result unisono_lock_all(unisono_window window);

// Ends the operations of this rank, and releases the locks of `unisono_lock_all`.
unisono_result unisono_unlock_all(unisono_window window);

// Lets these ranks access this rank's memory, until each has called `unisono_complete`.
unisono_result unisono_post(unisono_window window, size_t count, const uint32_t *ranks);

// Waits until these ranks let this one access their memory.
unisono_result unisono_start_epoch(unisono_window window, size_t count, const uint32_t *ranks);

// Ends the operations of the epoch that `unisono_start_epoch` began.
unisono_result unisono_complete(unisono_window window);

// Waits until the ranks of `unisono_post` have completed.
unisono_result unisono_wait_epoch(unisono_window window);

// Whether the ranks of `unisono_post` have completed; then their epoch is over.
unisono_result unisono_test_epoch(unisono_window window, bool *is_over);

// As `unisono_put`, with a request, which is complete when the target has received the elements. They are there after a
// flush.
unisono_result unisono_request_put(unisono_window window,
                                   const void *data,
                                   size_t count,
                                   unisono_datatype datatype,
                                   uint32_t rank,
                                   size_t offset,
                                   unisono_request *request);

// As `unisono_get`, with a request. The elements are in the buffer when it is complete.
unisono_result unisono_request_get(unisono_window window,
                                   void *data,
                                   size_t count,
                                   unisono_datatype datatype,
                                   uint32_t rank,
                                   size_t offset,
                                   unisono_request *request);

// As `unisono_accumulate`, with a request.
unisono_result unisono_request_accumulate(unisono_window window,
                                          const void *data,
                                          size_t count,
                                          unisono_datatype datatype,
                                          unisono_operation operation,
                                          uint32_t rank,
                                          size_t offset,
                                          unisono_request *request);

// As `unisono_get_accumulate`, with a request. The old elements are in `old` when it is complete.
unisono_result unisono_request_get_accumulate(unisono_window window,
                                              const void *data,
                                              void *old,
                                              size_t count,
                                              unisono_datatype datatype,
                                              unisono_operation operation,
                                              uint32_t rank,
                                              size_t offset,
                                              unisono_request *request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */
