# SPDX-License-Identifier: Apache-2.0
"""The client's side of the protocol without a network and without a clock: batches in, batches out.

    state.connected()                  the first batch has hello and the locks that are held
    batch = state.take(now)            to send, if there is something to say or `due` has come
    state.receive(batch, now)          from the server
    state.expire(now)                  after `lease_end` all locks are lost
"""
import collections

from . import lock_pb2 as pb

MODES = {"shared": pb.SHARED, "exclusive": pb.EXCLUSIVE, "null": pb.NULL_MODE,
         "concurrent-read": pb.CONCURRENT_READ, "concurrent-write": pb.CONCURRENT_WRITE,
         "protected-write": pb.PROTECTED_WRITE, "PR": pb.SHARED, "EX": pb.EXCLUSIVE,
         "NL": pb.NULL_MODE, "CR": pb.CONCURRENT_READ, "CW": pb.CONCURRENT_WRITE,
         "PW": pb.PROTECTED_WRITE}
FEATURE_MODES = 16  # six modes; without the bit for the volume, the server leaves the cache alone
OPS_MAX = 4096      # operations of a batch
NAME_MAX = 255


class Held:
    """One request for a lock, from the enqueue to its end."""

    WAITING, HELD, REFUSED, LOST = "waiting", "held", "refused", "lost"

    def __init__(self, cookie, name, mode, only_try, tell):
        self.cookie, self.name, self.mode, self.only_try = cookie, name, mode, only_try
        self.tell = tell  # called with this object when the state changes
        self.state = Held.WAITING
        self.handle = self.fence = self.incarnation = 0
        self.is_sent = False
        self.is_replaying = False
        self.why = None

    def become(self, state):
        if self.state != state:
            self.state = state
            self.tell(self)


class State:
    def __init__(self, job=""):
        self.job = job
        self.client, self.secret, self.incarnation, self.lease = 0, b"", 0, 0.0
        self.lease_end = 0.0
        self.held = {}     # by cookie; waiting ones too
        self.cookies = 0
        self.is_welcome = False
        self.is_told_to_go = False
        self.number = 0
        self.sent = collections.deque()  # (number, time) of batches that are not confirmed
        self.sent_at = 0.0
        self.out = []      # operations: functions that add themselves to a batch
        self.is_leaving = False

    # ---- the application ----
    def enqueue(self, name, mode, only_try, tell):
        self.cookies += 1
        held = Held(self.cookies, name, mode, only_try, tell)
        self.held[held.cookie] = held
        if self.is_welcome:
            self._send_enqueue(held)
        return held

    def release(self, held):
        if self.held.pop(held.cookie, None) is not None and self.is_welcome and held.handle:
            handle = held.handle
            self.out.append(lambda batch: batch.cancels.append(handle))

    def leave(self):
        self.is_leaving = True

    def _send_enqueue(self, held):
        held.is_sent = True
        self.out.append(lambda batch: batch.enqueues.add(
            cookie=held.cookie, mode=held.mode, only_try=held.only_try, name=held.name))

    # ---- the connection ----
    def connected(self):
        self.is_welcome = self.is_told_to_go = False
        self.number = 0
        self.sent.clear()
        self.out.clear()

    def disconnected(self):
        self.is_welcome = False
        self.out.clear()
        for held in self.held.values():
            held.is_sent = False

    def has_message(self, now):
        if not self.number:
            return True
        return self.is_welcome and len(self.sent) < 2 and (
            bool(self.out) or self.is_leaving or now >= self.due())

    def due(self):
        """When a keep-alive is due."""
        return self.sent_at + self.lease / 4

    def take(self, now):
        self.number += 1
        batch = pb.ClientBatch(number=self.number)
        if self.number == 1:
            self._begin(batch)
        ops, self.out = self.out[:OPS_MAX], self.out[OPS_MAX:]
        for add in ops:
            add(batch)
        batch.goodbye = self.is_leaving and not self.out and self.number > 1
        self.sent.append((self.number, now))
        self.sent_at = now
        return batch

    def _begin(self, batch):
        batch.hello.CopyFrom(pb.Hello(client=self.client, features=FEATURE_MODES, job=self.job,
                                      secret=self.secret))
        for held in self.held.values():
            if held.state == Held.HELD:
                held.is_replaying = True
                batch.replays.add(cookie=held.cookie, handle=held.handle, fence=held.fence,
                                  incarnation=held.incarnation, mode=held.mode, name=held.name)
        batch.replayed = True

    def receive(self, batch, now):
        if batch.HasField("welcome"):
            self._welcome(batch.welcome)
        while self.sent and self.sent[0][0] <= batch.confirms:
            _, at = self.sent.popleft()
            if self.is_welcome:
                self.lease_end = max(self.lease_end, at + self.lease)
        self.expire(now)
        for op in batch.ops:
            self._apply(op, now)

    def _welcome(self, welcome):
        self.is_welcome = True
        self.client, self.secret = welcome.client, welcome.secret
        self.incarnation, self.lease = welcome.incarnation, welcome.lease_ns / 1e9
        for held in self.held.values():
            if held.state == Held.WAITING and not held.is_sent:
                self._send_enqueue(held)

    def _apply(self, op, now):
        if op.kind == pb.ServerOp.GO_AWAY:
            self.is_told_to_go = True
        held = self.held.get(op.cookie)
        if held is None:
            # Released or lost before the answer came: return what was granted or kept since.
            if op.kind in (pb.ServerOp.GRANTED, pb.ServerOp.QUEUED, pb.ServerOp.KEPT):
                self.out.append(lambda batch: batch.cancels.append(op.handle))
        elif op.kind == pb.ServerOp.QUEUED:
            held.handle = op.handle
        elif op.kind == pb.ServerOp.GRANTED:
            held.handle, held.fence, held.incarnation = op.handle, op.fence, self.incarnation
            held.become(Held.HELD if now < self.lease_end else Held.LOST)
        elif op.kind == pb.ServerOp.REFUSED:
            held.why = op.why
            self.held.pop(op.cookie)
            held.become(Held.REFUSED)
        elif op.kind == pb.ServerOp.KEPT and held.is_replaying:
            held.is_replaying = False
            held.handle, held.incarnation = op.handle, self.incarnation
        elif op.kind == pb.ServerOp.LOST and held.is_replaying:
            self._lose(held)

    def _lose(self, held):
        self.held.pop(held.cookie, None)
        held.become(Held.LOST)

    def expire(self, now):
        if now < self.lease_end:
            return
        for held in [one for one in self.held.values() if one.state == Held.HELD]:
            if self.is_welcome and not held.is_replaying:
                handle = held.handle
                self.out.append(lambda batch, handle=handle: batch.cancels.append(handle))
            self._lose(held)
