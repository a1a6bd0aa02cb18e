// SPDX-License-Identifier: Apache-2.0
//
// A scheduler that moves through epochs together with schedulers on other servers, by the local
// socket of a Weir server (socket in [cluster] of weir.conf(5)). It needs no library:
//
//   cc -o scheduler scheduler.c
//   ./scheduler /run/weir/epochs.sock zones 20 10       20 epochs, 10 requests waiting here
//
// In each epoch it submits one number, and gets the sum of the numbers of all servers. A real
// scheduler would submit what waits in each of its groups, and serve the group with the largest sum
// until the epoch ends. After an error it goes on alone, and joins the others again with epoch 0.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { kJoin = 1, kReady = 2, kLeave = 3, kJoined = 4, kStart = 5, kError = 6 };
enum { kSum = 1, kMin = 2, kMax = 3, kOr = 4, kGather = 5 };
enum { kHead = 8, kNumber = 8, kBodyMax = 64 * 1024, kTimeoutMs = 1000, kEpochUs = 20 * 1000 };

static void fail(const char* what) {
  fprintf(stderr, "scheduler: %s: %s\n", what, strerror(errno));
  exit(1);
}

// Integers are big-endian.
static void put(unsigned char* to, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) to[i] = (unsigned char)(value >> (8 * (size - 1 - i)));
}
static uint64_t get(const unsigned char* from, int size) {
  uint64_t value = 0;
  for (int i = 0; i < size; ++i) value = value << 8 | from[i];
  return value;
}

static void send_all(int fd, const unsigned char* bytes, size_t size) {
  while (size > 0) {
    ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail("send");
    bytes += sent;
    size -= (size_t)sent;
  }
}
static void receive_all(int fd, unsigned char* bytes, size_t size) {
  while (size > 0) {
    ssize_t received = recv(fd, bytes, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received == 0) errno = ECONNRESET;
    if (received <= 0) fail("receive");
    bytes += received;
    size -= (size_t)received;
  }
}

// A message: the length of its body (4), its kind (1), version 1 (1) and 0 (2), then the body.
static void tell(int fd, int kind, const unsigned char* body, size_t size) {
  unsigned char head[kHead] = {0};
  put(head, size, 4);
  head[4] = (unsigned char)kind;
  head[5] = 1;
  send_all(fd, head, sizeof head);
  if (size > 0) send_all(fd, body, size);
}
// Returns the kind.
static int hear(int fd, unsigned char* body, size_t* size) {
  unsigned char head[kHead];
  receive_all(fd, head, sizeof head);
  *size = get(head, 4);
  if (*size > kBodyMax) {
    errno = EMSGSIZE;
    fail("receive");
  }
  receive_all(fd, body, *size);
  if (head[4] == kError && *size >= 4) {
    fprintf(stderr, "scheduler: the server says: %.*s\n", (int)(*size - 4), (char*)body + 4);
    exit(1);
  }
  return head[4];
}

static int connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    fail(path);
  }
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr*)&address, sizeof address) != 0) fail(path);
  return fd;
}

// The reduction (1), the timeout in ms (4) and the name. Schedulers with the same reduction and
// name are in the same epochs, one on each server.
static void join(int fd, const char* name) {
  unsigned char body[5 + 32];
  size_t size = strlen(name);
  if (size > 32) size = 32;  // the server says what is wrong
  body[0] = kSum;
  put(body + 1, kTimeoutMs, 4);
  memcpy(body + 5, name, size);
  tell(fd, kJoin, body, 5 + size);
  unsigned char answer[kBodyMax];
  (void)hear(fd, answer, &size);
}

// Ready for the epoch after this one. Returns the next one, or a negative errno, and the sum.
static int64_t next_epoch(int fd, int64_t epoch, uint64_t waiting, uint64_t* sum) {
  unsigned char body[2 * kNumber];
  put(body, (uint64_t)epoch, kNumber);
  put(body + kNumber, waiting, kNumber);
  tell(fd, kReady, body, sizeof body);
  unsigned char answer[kBodyMax];
  size_t size = 0;
  if (hear(fd, answer, &size) != kStart || size < kNumber) {
    errno = EPROTO;
    fail("receive");
  }
  *sum = size >= 2 * kNumber ? get(answer + kNumber, kNumber) : 0;
  return (int64_t)get(answer, kNumber);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: scheduler SOCKET NAME EPOCHS WAITING\n");
    return 64;
  }
  int fd = connect_to(argv[1]);
  join(fd, argv[2]);
  int64_t epoch = 0;  // unknown
  for (long left = atol(argv[3]); left > 0;) {
    uint64_t sum = 0;
    int64_t next = next_epoch(fd, epoch, strtoull(argv[4], NULL, 10), &sum);
    if (next < 0) {
      printf("alone: %s\n", strerror((int)-next));
      epoch = 0;
    } else {
      printf("epoch %lld: %llu requests wait on all servers\n", (long long)next,
             (unsigned long long)sum);
      epoch = next;
      --left;
    }
    fflush(stdout);
    usleep(kEpochUs);  // the length of the epoch, in which requests would be served
  }
  tell(fd, kLeave, NULL, 0);
  return 0;
}
