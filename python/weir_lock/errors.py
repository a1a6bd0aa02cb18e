# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a lock. All errors are LockError."""


class LockError(Exception):
    """A lock was not acquired, or is not held any more."""


class LockTimeout(LockError, TimeoutError):
    """The lock was not granted within the time, or another client holds it (timeout=0)."""


class LockRefused(LockError):
    """The server refuses the request: the name or the mode is not valid, or too many wait."""


class LockLost(LockError):
    """The lease has ended, or the server has taken the lock away. Another client may hold it."""
