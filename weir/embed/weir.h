// SPDX-License-Identifier: Apache-2.0
//
// Weir for servers that are not written in C++: the scheduler with its rules and shares, and the
// device limiter, as plain C. docs/embedding.md shows both ways side by side; a whole server is in
// examples/c-server.
//
//   weir_gate_admit(gate, request, WEIR_REGULAR);      a request has arrived
//   weir_gate_next(gate, &request, NULL);              the request that may run now, or NULL
//   weir_gate_complete(gate, request);                 the device is done with it
//
// Call weir_gate_next() until it returns no request after each of: an admit, a completion, a change
// of rules, and whenever weir_gate_fd() is readable.
//
// Errors. Functions that return int return 0, or an errno value; then nothing has changed, and
// weir_error() has the message. NULL, a request that is admitted twice, completed although it does
// not run, or freed while it is queued, and text that is not valid are such errors. So is the use
// of a freed handle, unless WEIR_FREED_MAX handles of its kind were freed after it.
//
// Threads. Any thread may call any function of a gate or a limiter. A request belongs to the thread
// that created it or got it from weir_gate_next(), until it passes it on or admits it. No function
// blocks or calls back, except that a gate calls its own clock.
//
// Strings are copied. No C++ type and no exception crosses this header.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_FREED_MAX 256
// No time: nothing happens before the next call.
#define WEIR_NEVER UINT64_MAX
// A user, group or project that is not known.
#define WEIR_UNKNOWN_ID UINT32_MAX

typedef struct weir_gate weir_gate;
typedef struct weir_request weir_request;
typedef struct weir_limiter weir_limiter;

// Of the library: "0.1.0".
WEIR_API const char* weir_version(void);
// The message of the last call of this thread that failed: the object, what is wrong with it and
// what to do. Valid until another call of this thread fails; "" if none has failed.
WEIR_API const char* weir_error(void);

// ---- requests ----

// Functions take these as int, so that any other number is an error.
enum weir_operation {
  WEIR_READ,
  WEIR_WRITE,
  WEIR_FLUSH,
  WEIR_DISCARD,
  WEIR_ZERO,
  WEIR_METADATA_READ,
  WEIR_METADATA_CHANGE,
  WEIR_LOCK,
  WEIR_OTHER
};

// A request of no bytes from an unknown client. Use it again when it is completed.
WEIR_API int weir_request_new(weir_request** request);
// EBUSY: it is queued or runs. Does nothing with NULL.
WEIR_API int weir_request_free(weir_request* request);

// All of these fail with EBUSY while the request is queued or runs.

// What it does, and how many bytes it moves: at most 1 TiB.
WEIR_API int weir_request_set_operation(weir_request* request, int operation, uint64_t bytes);
// The address of its client: "10.0.0.7", "fe80::1", or a NID as in rules, "10.0.0.7@o2ib".
// Requests without a job (below) belong to the job of that name.
WEIR_API int weir_request_set_client(weir_request* request, const char* address);
// Its job, at most 31 bytes; requests share a device by jobs. "" or NULL: its client.
WEIR_API int weir_request_set_job(weir_request* request, const char* job);
WEIR_API int weir_request_set_user(weir_request* request, uint32_t uid, uint32_t gid);
WEIR_API int weir_request_set_project(weir_request* request, uint32_t project);

// A pointer of the caller, which Weir only keeps.
WEIR_API int weir_request_set_context(weir_request* request, void* context);
// NULL if the request is not valid.
WEIR_API void* weir_request_context(const weir_request* request);

// ---- the gate in front of a device ----

// All zeroes except the size are the defaults.
typedef struct weir_gate_options {
  size_t size;          // sizeof(weir_gate_options)
  uint32_t slots;       // requests that run at a time; 0: 16
  uint32_t high_slots;  // of these, only for requests of WEIR_HIGH
  // "tbf" (the default), "tbf nid", "crrn", "fifo": weir-serve(1), --policy.
  const char* policy;
  // What the device can serve per second: "auto" (the default) is measured; "20k" operations,
  // "500MiB/s"; "none": jobs take turns by their nodes, and only rules limit.
  const char* capacity;
  // Not 0: jobs have no shares; only the rules apply, including the rule "default".
  int32_t limits_only;
  // Nanoseconds that never decrease, for tests. NULL: the monotonic clock. With another clock
  // there is no weir_gate_fd(). Must not call the gate.
  uint64_t (*clock)(void* argument);
  void* clock_argument;
} weir_gate_options;

enum weir_priority { WEIR_REGULAR, WEIR_HIGH };

enum weir_outcome {
  WEIR_DONE,
  WEIR_FAILED,      // the device refused it; it stays charged
  WEIR_NOT_STARTED  // it never reached the device; its tokens are given back
};

// Options NULL: the defaults.
WEIR_API int weir_gate_new(weir_gate** gate, const weir_gate_options* options);
// EBUSY: requests are queued or run. Does nothing with NULL.
WEIR_API int weir_gate_free(weir_gate* gate);

// EBUSY: the request is queued or runs. ESHUTDOWN: after weir_gate_shutdown().
WEIR_API int weir_gate_admit(weir_gate* gate, weir_request* request, int priority);
// Sets *request to one that may run, or to NULL. Then *wait_ns is the time until another may run
// (WEIR_NEVER: not before an admit or a completion), and weir_gate_fd() becomes readable by then.
// wait_ns may be NULL.
WEIR_API int weir_gate_next(weir_gate* gate, weir_request** request, uint64_t* wait_ns);
// EINVAL: the request does not run, or belongs to another gate.
WEIR_API int weir_gate_complete(weir_gate* gate, weir_request* request);
// The same for one that failed, or moved another number of bytes than it was charged for: the
// difference is settled with its limits.
WEIR_API int weir_gate_complete_as(weir_gate* gate, weir_request* request, int outcome,
                                   uint64_t bytes);
// Takes back a request that is queued, because its client has disconnected; nothing is charged.
// EINVAL: it is not queued here.
WEIR_API int weir_gate_withdraw(weir_gate* gate, weir_request* request);
// Gives a queued request WEIR_HIGH priority, because others wait for it. EINVAL: it is not queued
// here.
WEIR_API int weir_gate_promote(weir_gate* gate, weir_request* request);
// No admit follows. Queued requests are handed out without waiting for limits.
WEIR_API int weir_gate_shutdown(weir_gate* gate);
// A descriptor for poll(2) or epoll(7): readable when weir_gate_next() is due. It belongs to the
// gate. -1 on error.
WEIR_API int weir_gate_fd(weir_gate* gate);

// Commands of weir-rules(7), one on each line: "start dd jobid={dd.*} rate=10k". All of them, or
// none; the message names the command that is not valid.
WEIR_API int weir_gate_rules(weir_gate* gate, const char* commands);
// As weir_gate_options: another policy, while requests wait.
WEIR_API int weir_gate_set_policy(weir_gate* gate, const char* policy);
// As weir_gate_options, in the same unit. ENODEV with limits_only.
WEIR_API int weir_gate_set_capacity(weir_gate* gate, const char* capacity);
// A job has shares in proportion to its nodes, 1 unless set; 0: as if never set.
WEIR_API int weir_gate_set_nodes(weir_gate* gate, const char* job, uint64_t nodes);
// Policy, rules, classes and jobs with their shares as one JSON object; docs/embedding.md lists its
// keys. The caller frees *json with free(3).
WEIR_API int weir_gate_snapshot(weir_gate* gate, char** json);

// ---- the device limiter: operations and bytes, each with a bucket ----

// `size` tokens that refill in `refill_ns`, and an extra budget that is spent first and never
// refilled. No limit if size or refill_ns is 0.
typedef struct weir_bucket {
  uint64_t size;
  uint64_t one_time_burst;
  uint64_t refill_ns;
} weir_bucket;

// Buckets that are NULL do not limit.
WEIR_API int weir_limiter_new(weir_limiter** limiter, const weir_bucket* bytes,
                              const weir_bucket* operations);
// Does nothing with NULL.
WEIR_API int weir_limiter_free(weir_limiter* limiter);
// Takes one operation of so many bytes. EAGAIN: not now; wait until weir_limiter_fd() is readable,
// call weir_limiter_resume() and try again.
WEIR_API int weir_limiter_take(weir_limiter* limiter, uint64_t bytes);
// EAGAIN: the descriptor is not readable.
WEIR_API int weir_limiter_resume(weir_limiter* limiter);
// Gives back one operation of so many bytes, which was taken and not done.
WEIR_API int weir_limiter_give_back(weir_limiter* limiter, uint64_t bytes);
// Other limits from now on; buckets stay as full as they are.
WEIR_API int weir_limiter_update(weir_limiter* limiter, const weir_bucket* bytes,
                                 const weir_bucket* operations);
// It belongs to the limiter. -1 on error.
WEIR_API int weir_limiter_fd(weir_limiter* limiter);

#ifdef __cplusplus
}
#endif
