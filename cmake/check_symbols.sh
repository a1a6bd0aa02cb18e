#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check_symbols.sh ARCHIVE: checks that a PURE module uses no clock, random numbers, threads, files
# or network, through any header. Failed assertions may write to stderr (fwrite, abort).
set -eu
symbols=$(nm -uC "$1") || { echo "check_symbols: cannot read $1" >&2; exit 1; }

# Functions and variables of libc, one kind per line.
calls='clock_[a-z]+|gettimeofday|timespec_get|time|times|clock|ftime|getrusage'
calls="$calls|nanosleep|usleep|sleep|alarm|setitimer|timer_[a-z]+|timerfd_[a-z]+"
calls="$calls|getrandom|getentropy|s?rand(om)?|rand(om)?_r|[dlm]rand48|arc4random[a-z_]*"
calls="$calls|pthread_[a-z_]+|(thrd|mtx|cnd)_[a-z_]+|sem_[a-z]+|sched_[a-z_]+|call_once"
calls="$calls|v?fork|clone|exec[lv][a-z]*|posix_spawnp?|system|popen|wait(pid|id)?"
calls="$calls|kill|raise|sigaction|signal|getenv|secure_getenv|syscall|dlopen|dlsym"
calls="$calls|open(at)?|creat|close|p?(read|write)v?2?|ioctl|fcntl|dup[23]?|pipe2?|lseek|mmap|fsync"
calls="$calls|[fl]?stat|fstatat|unlink|rename|remove|mkdir|opendir|mkstemp|tmpfile|f(d|re)?open"
calls="$calls|std(in|out)|fread|puts|putchar|v?printf"
calls="$calls|socket|socketpair|connect|bind|listen|accept4?|send(to|msg)?|recv(from|msg)?"
calls="$calls|getaddrinfo|p?poll|p?select|epoll_[a-z0-9_]+|eventfd|inotify_[a-z0-9_]+"

# Of the C++ library, of fmt (printing to standard output) and of liburing.
names='_clock::now|std::random_device|std::j?thread|std::this_thread|std::condition_variable'
names="$names|std::filesystem|basic_[io]?f(stream|ilebuf)|std::(cin|cout|cerr|clog)\$"
names="$names|fmt::v[0-9]+::vprint\\(fmt::|io_uring_"

# glibc has other spellings of a function: read64, __read_chk, __open_2.
bad=$(printf '%s\n' "$symbols" |
  grep -E -e "^ *U (__)?($calls)(64)?(_2|_chk)?(@.*)?\$" -e "^ *U .*($names)" || true)
[ -n "$bad" ] || exit 0
{ echo "$1 is declared PURE but uses symbols of the operating system:"; echo "$bad"; } >&2
exit 1
