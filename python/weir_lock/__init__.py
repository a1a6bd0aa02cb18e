# SPDX-License-Identifier: Apache-2.0
"""A client of the lock service of Weir: named locks that hold across machines.

    with weir_lock.Client("10.0.0.1:10811,10.0.0.2:10811") as client:
        with client.lock("project/run42", timeout=30) as held:
            write_to_storage(data, held.fence)   # storage rejects smaller fences
            held.check()                         # LockLost if another client may have it now

    async with weir_lock.AsyncClient("10.0.0.1:10811") as client:
        async with client.lock("project/run42", mode="shared") as held:
            await held.lost.wait()               # or work, and stop when it is set

A lock is held under a lease, counted from when the last message that the server confirmed was sent.
A broken connection loses no lock if a server is reached again within the lease: the client tries
the servers one after the other and reports its locks. It caches no locks: leaving the block returns
the lock. Only the holder's own clock is used, one that continues while the machine sleeps.

Client may be used by several threads, AsyncClient by one event loop. After a fork, only the parent
may use a client. Protocol: docs/protocol-lock.md.
"""
from . import aio, errors, threads

AsyncClient, AsyncLock = aio.AsyncClient, aio.AsyncLock
Client, Lock = threads.Client, threads.Lock
LockError, LockLost = errors.LockError, errors.LockLost
LockRefused, LockTimeout = errors.LockRefused, errors.LockTimeout
