// SPDX-License-Identifier: Apache-2.0
//
// A block server in C with fairness between its clients, in one thread: it exports a file over NBD,
// and Weir decides whose request is next. However many requests a client sends at once, it gets its
// turn and no more. A client is its export name, or its address if it names none.
//
//   c-server disk.img 2k 'start slow jobid={slow} rate=100'     FILE [CAPACITY [RULE...]]
//   nbdinfo nbd://127.0.0.1:PORT/alice                          it prints the port
//
// Memory is bounded: a client has at most REQUESTS_MAX requests of at most LENGTH_MAX bytes. An
// example: no TLS, no threads, and the file is read and written in the loop.
#define _GNU_SOURCE  // accept4
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir.h>

enum { REQUESTS_MAX = 32, LENGTH_MAX = 1 << 20, OPTION_MAX = 4096 };
enum { CMD_READ, CMD_WRITE, CMD_DISC, CMD_FLUSH };  // of NBD
enum stage { FLAGS, OPTION, OPTION_BODY, REQUEST, PAYLOAD };
struct __attribute__((packed)) option { uint64_t magic; uint32_t number, length; };
struct __attribute__((packed)) request {
  uint32_t magic; uint16_t flags, type; uint64_t cookie, offset; uint32_t length;
};
struct __attribute__((packed)) reply { uint32_t magic, error; uint64_t cookie; };

struct client;
struct io {  // a request of a client
  weir_request *ticket;
  struct client *client;
  struct io *next;
  struct request head;  // in the order of this machine
  char *data;
};
struct client {
  int fd;
  enum stage stage;
  size_t have, need;      // bytes of the current message
  char in[OPTION_MAX];    // the message, unless it is the payload of a write
  struct option option;
  struct io *ios, *write; // those admitted; the one being received
  int admitted;
  char *out;              // replies that the socket has not taken yet
  size_t sent, end;
  char address[INET_ADDRSTRLEN], name[32];
};

static int epoll, file;
static uint64_t file_size;
static weir_gate *gate;

static void die(const char *what, const char *why) {
  fprintf(stderr, "c-server: %s: %s\n", what, why);
  exit(1);
}

static void check(int code, const char *what) { if (code != 0) die(what, weir_error()); }

static void *must(void *memory) {
  if (memory == NULL) die("memory", "none is left");
  return memory;
}

static void watch(struct client *c, int operation) {
  // While many replies or requests wait, the client's next requests stay in its socket.
  bool is_full = c->admitted >= REQUESTS_MAX || c->end - c->sent > LENGTH_MAX;
  struct epoll_event event = {.events = (is_full ? 0U : (unsigned)EPOLLIN) |
                                        (c->end > c->sent ? (unsigned)EPOLLOUT : 0U),
                              .data.ptr = c};
  if (epoll_ctl(epoll, operation, c->fd, &event) != 0) die("epoll", strerror(errno));
}

static void discard(struct io *io) {
  weir_request_free(io->ticket);
  free(io->data);
  free(io);
}

static void drop(struct client *c) {
  for (struct io *io = c->ios, *next; io != NULL; io = next) {
    next = io->next;
    check(weir_gate_withdraw(gate, io->ticket), "withdraw");  // nothing runs between two events
    discard(io);
  }
  if (c->write != NULL) discard(c->write);
  close(c->fd);
  free(c->out);
  free(c);
}

static void put(struct client *c, const void *bytes, size_t length) {
  if (c->sent == c->end) c->sent = c->end = 0;
  c->out = must(realloc(c->out, c->end + length));
  if (length > 0) memcpy(c->out + c->end, bytes, length);
  c->end += length;
}

static bool flush(struct client *c) {  // false: the client is gone
  while (c->sent < c->end) {
    ssize_t n = send(c->fd, c->out + c->sent, c->end - c->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)n;
  }
  return true;
}

static void expect(struct client *c, enum stage stage, size_t need) {
  c->stage = stage, c->have = 0, c->need = need;
}

static void admit(struct client *c, struct io *io) {
  static const int operations[] = {WEIR_READ, WEIR_WRITE, WEIR_OTHER, WEIR_FLUSH};
  check(weir_request_new(&io->ticket), "request");
  check(weir_request_set_client(io->ticket, c->address), "client");
  check(weir_request_set_job(io->ticket, c->name), "job");
  check(weir_request_set_operation(io->ticket, operations[io->head.type], io->head.length), "size");
  check(weir_request_set_context(io->ticket, io), "context");
  check(weir_gate_admit(gate, io->ticket, WEIR_REGULAR), "admit");
  io->next = c->ios;
  c->ios = io;
  c->write = NULL;
  ++c->admitted;
  expect(c, REQUEST, sizeof io->head);
}

// Replies to an option: its number, a type and a body.
static void option_reply(struct client *c, uint32_t type, const void *body, uint32_t length) {
  struct __attribute__((packed)) { uint64_t magic; uint32_t option, type, length; } head = {
      htobe64(0x3e889045565a9), htobe32(c->option.number), htobe32(type), htobe32(length)};
  put(c, &head, sizeof head);
  put(c, body, length);
}

static bool take_option(struct client *c) {
  struct __attribute__((packed)) { uint16_t info; uint64_t size; uint16_t flags; } export = {
      0, htobe64(file_size), htobe16(1 | 4)};  // has flags, can flush
  uint32_t number = c->option.number, length = c->option.length, name = 0;
  expect(c, OPTION, sizeof c->option);
  if (length >= 6) memcpy(&name, c->in, 4);
  name = be32toh(name);
  if (number == 2) return false;  // NBD_OPT_ABORT
  if (number != 6 && number != 7) {
    option_reply(c, 0x80000001, NULL, 0);  // not supported
  } else if (length < 6 || name > length - 6 || name >= sizeof c->name ||
             memchr(c->in + 4, 0, name) != NULL) {
    option_reply(c, 0x80000003, NULL, 0);  // invalid
  } else {  // NBD_OPT_INFO, NBD_OPT_GO
    memcpy(c->name, c->in + 4, name);
    c->name[name] = 0;
    option_reply(c, 3, &export, sizeof export);
    option_reply(c, 1, NULL, 0);
    if (number == 7) expect(c, REQUEST, sizeof(struct request));
  }
  return true;
}

static bool take_request(struct client *c) {
  struct io *io = must(calloc(1, sizeof *io));
  struct request *head = &io->head;
  memcpy(head, c->in, sizeof *head);
  head->type = be16toh(head->type);
  head->offset = be64toh(head->offset);
  head->length = head->type <= CMD_WRITE ? be32toh(head->length) : 0;
  io->client = c;
  io->data = must(malloc(head->length <= LENGTH_MAX ? head->length + 1UL : 1));
  c->write = io;  // until it is admitted
  expect(c, PAYLOAD, head->type == CMD_WRITE ? head->length : 0);
  return be32toh(head->magic) == 0x25609513 && head->type != CMD_DISC && head->type <= CMD_FLUSH &&
         head->length <= LENGTH_MAX;
}

static bool take(struct client *c) {  // a whole message; false: disconnect
  switch (c->stage) {
    case FLAGS: expect(c, OPTION, sizeof c->option); return true;
    case OPTION:
      memcpy(&c->option, c->in, sizeof c->option);
      c->option.number = be32toh(c->option.number);
      c->option.length = be32toh(c->option.length);
      expect(c, OPTION_BODY, c->option.length);
      return be64toh(c->option.magic) == 0x49484156454F5054 && c->option.length <= OPTION_MAX;
    case OPTION_BODY: return take_option(c);
    case REQUEST: return take_request(c);
    case PAYLOAD: break;
  }
  admit(c, c->write);
  return true;
}

static bool receive(struct client *c) {
  while (c->admitted < REQUESTS_MAX && c->end - c->sent <= LENGTH_MAX) {
    char *to = c->stage == PAYLOAD ? c->write->data : c->in;
    if (c->have < c->need) {
      ssize_t n = recv(c->fd, to + c->have, c->need - c->have, 0);
      if (n == 0) return false;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      c->have += (size_t)n;
    }
    if (c->have == c->need && !take(c)) return false;
  }
  return true;
}

static int do_io(struct io *io) {  // an NBD error, or 0
  off_t at = (off_t)io->head.offset;
  if (io->head.offset > file_size || io->head.length > file_size - io->head.offset) return 22;
  if (io->head.type == CMD_FLUSH) return fsync(file) == 0 ? 0 : 5;
  for (size_t done = 0; done < io->head.length;) {
    size_t left = io->head.length - done;
    ssize_t n = io->head.type == CMD_READ ? pread(file, io->data + done, left, at + (off_t)done)
                                          : pwrite(file, io->data + done, left, at + (off_t)done);
    if (n <= 0 && errno != EINTR) return 5;  // NBD_EIO
    if (n > 0) done += (size_t)n;
  }
  return 0;
}

static void run_ready(void) {  // everything that may run now
  weir_request *ticket;
  for (;;) {
    check(weir_gate_next(gate, &ticket, NULL), "next");
    if (ticket == NULL) return;
    struct io *io = weir_request_context(ticket);
    struct client *c = io->client;
    int error = do_io(io);
    int outcome = error == 0 ? WEIR_DONE : WEIR_FAILED;
    check(weir_gate_complete_as(gate, ticket, outcome, io->head.length), "complete");
    struct reply reply = {htobe32(0x67446698), htobe32((uint32_t)error), io->head.cookie};
    put(c, &reply, sizeof reply);
    if (error == 0 && io->head.type == CMD_READ) put(c, io->data, io->head.length);
    struct io **at = &c->ios;
    while (*at != io) at = &(*at)->next;
    *at = io->next;
    --c->admitted;
    discard(io);
    flush(c);  // a client that is gone is noticed by its next event
    watch(c, EPOLL_CTL_MOD);
  }
}

static void greet(int listener) {
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  struct client *c = must(calloc(1, sizeof *c));
  c->fd = fd;
  inet_ntop(AF_INET, &from.sin_addr, c->address, sizeof c->address);
  struct __attribute__((packed)) { uint64_t magic, option; uint16_t flags; } hello = {
      htobe64(0x4e42444d41474943), htobe64(0x49484156454F5054), htobe16(3)};  // no zeroes
  put(c, &hello, sizeof hello);
  expect(c, FLAGS, 4);
  watch(c, EPOLL_CTL_ADD);
}

static void add_to_loop(int fd, void *what) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll", strerror(errno));
}

int main(int argc, char **argv) {
  if (argc < 2) die("usage", "c-server FILE [CAPACITY [RULE...]]");
  struct stat stat;
  file = open(argv[1], O_RDWR | O_CLOEXEC);
  if (file < 0 || fstat(file, &stat) != 0) die(argv[1], strerror(errno));
  file_size = (uint64_t)stat.st_size;
  // One slot, because the loop does one request at a time.
  weir_gate_options options = {.size = sizeof options, .slots = 1};
  options.capacity = argc > 2 ? argv[2] : "none";
  check(weir_gate_new(&gate, &options), "gate");
  for (int i = 3; i < argc; ++i) check(weir_gate_rules(gate, argv[i]), "rules");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 64) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &length) != 0) die("bind", strerror(errno));
  printf("ready on port %d\n", ntohs(address.sin_port));
  fflush(stdout);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  add_to_loop(listener, &listener);
  add_to_loop(weir_gate_fd(gate), gate);
  for (;; run_ready()) {
    struct epoll_event event;
    if (epoll_wait(epoll, &event, 1, -1) != 1 || event.data.ptr == gate) continue;
    struct client *c = event.data.ptr;
    bool is_gone = (event.events & (EPOLLHUP | EPOLLERR)) != 0;
    if (event.data.ptr == &listener) greet(listener);
    else if (is_gone || !flush(c) || !receive(c)) drop(c);
    else watch(c, EPOLL_CTL_MOD);
  }
}
