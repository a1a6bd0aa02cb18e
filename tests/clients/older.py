# SPDX-License-Identifier: Apache-2.0
"""Runs a program as if on another system, with a filter of system calls (seccomp).

    python3 tests/clients/older.py linux-4.18 weir serve ...

The systems:
  linux-4.18     system calls that are newer do not exist (ENOSYS), and a buffered write cannot be
                 told not to wait (EOPNOTSUPP)
  container      io_uring is not permitted (EPERM), as in the default profiles of container engines
  no-enter       io_uring can be set up, but not used
  no-register    io_uring can be set up, but nothing can be registered with it
  no-copies      threads of epoll cannot read from files (EIO): data that is still served was sent
                 from the page cache
  no-copies-6.4  the same before Linux 6.5, which cannot report what is cached
"""
import ctypes
import errno
import os
import platform
import struct
import sys

IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER = 425, 426, 427
CACHESTAT = 451
# The first system call number that Linux 4.18 does not have, and pwritev2, by machine. Numbers of
# later calls are the same everywhere.
FIRST_UNKNOWN = {"x86_64": 335}.get(platform.machine(), 424)
PREADV = {"x86_64": 295, "aarch64": 69}.get(platform.machine())
PWRITEV2 = {"x86_64": 328, "aarch64": 287}.get(platform.machine())
RWF_NOWAIT = 8

LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER, SIXTH_ARGUMENT = 0, 16 + 5 * 8  # offsets in struct seccomp_data
ALLOW, FAIL = 0x7fff0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("=HBBI", code, if_true, if_false, value)


def refuse(number, error):
    """The filter for one system call."""
    return instruction(EQUAL, number, 0, 1) + instruction(RETURN, FAIL | error)


def program(system):
    code = instruction(LOAD, NUMBER)
    if system == "linux-4.18":
        code += instruction(AT_LEAST, FIRST_UNKNOWN, 0, 1)
        code += instruction(RETURN, FAIL | errno.ENOSYS)
        code += instruction(EQUAL, PWRITEV2, 0, 4)
        code += instruction(LOAD, SIXTH_ARGUMENT) + instruction(AND, RWF_NOWAIT)
        code += instruction(EQUAL, RWF_NOWAIT, 0, 1)
        code += instruction(RETURN, FAIL | errno.EOPNOTSUPP)
    elif system == "container":
        for number in (IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER):
            code += refuse(number, errno.EPERM)
    elif system == "no-enter":
        code += refuse(IO_URING_ENTER, errno.EPERM)
    elif system == "no-register":
        code += refuse(IO_URING_REGISTER, errno.EPERM)
    elif system == "no-copies":
        code += refuse(PREADV, errno.EIO)
    elif system == "no-copies-6.4":
        code += refuse(PREADV, errno.EIO) + refuse(CACHESTAT, errno.ENOSYS)
    else:
        sys.exit(f"{system} is not a system; see the beginning of {sys.argv[0]}")
    return code + instruction(RETURN, ALLOW)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def become(system):
    code = program(system)
    libc = ctypes.CDLL(None, use_errno=True)
    filters = Program(len(code) // 8, code)
    if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filters)) != 0):
        sys.exit(f"cannot filter system calls: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    become(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
