# SPDX-License-Identifier: Apache-2.0
"""A minimal client of ONC RPC and NFS for tests of the gateway: it can send any call at any time,
unlike a real client; and a server whose answers a test defines.

    client = Client(port)
    client.send(getattr3(7, handle, uid=1000))
    xid, results = client.reply()
"""
import contextlib
import socket
import struct
import threading

NFS, MOUNT = 100003, 100005
DELAY = 10008


def u32(*values):
    return struct.pack(f">{len(values)}I", *values)


def u64(value):
    return struct.pack(">Q", value)


def opaque(data):
    return u32(len(data)) + data + bytes(-len(data) % 4)


def record(message):
    return u32(len(message) | 1 << 31) + message


def call(xid, program, version, procedure, arguments=b"", uid=None):
    credential = u32(0, 0)
    if uid is not None:
        credential = u32(1) + opaque(u32(1) + opaque(b"test") + u32(uid, uid, 0))
    return record(u32(xid, 0, 2, program, version, procedure) + credential + u32(0, 0) + arguments)


def reply(xid, results=b""):
    return record(u32(xid, 1, 0, 0, 0, 0) + results)


def null(xid):
    return call(xid, NFS, 3, 0)


def getattr3(xid, handle, uid=1000):
    return call(xid, NFS, 3, 1, opaque(handle), uid)


def read3(xid, handle, count, uid=1000):
    return call(xid, NFS, 3, 6, opaque(handle) + u64(0) + u32(count), uid)


def write3(xid, handle, data, uid=1000):
    return call(xid, NFS, 3, 7, opaque(handle) + u64(0) + u32(len(data), 0) + opaque(data), uid)


def compound(xid, operations, uid, minor=1):
    return call(xid, NFS, 4, 1, opaque(b"") + u32(minor, len(operations)) + b"".join(operations),
                uid)


def sequence(session, slot, number):
    return u32(53) + session + u32(number, slot, slot, 0)


def receive(stream, count):
    data = bytearray()
    while len(data) < count:
        piece = stream.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return bytes(data)


def message_of(stream):
    """The next message, whatever its fragments."""
    message = b""
    while True:
        mark, = struct.unpack(">I", receive(stream, 4))
        message += receive(stream, mark & 0x7FFFFFFF)
        if mark >> 31:
            return message


class Client:
    def __init__(self, port, timeout=60, host="127.0.0.1", source=None):
        self.socket = socket.create_connection((host, port), source_address=source)
        self.socket.settimeout(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *records):
        self.socket.sendall(b"".join(records))

    def reply(self):
        """The xid and the results of the next reply, which is a success."""
        message = message_of(self.socket)
        xid, *rest = struct.unpack(">6I", message[:24])
        assert rest == [1, 0, 0, 0, 0], rest
        return xid, message[24:]

    def is_closed(self):
        """Whether the connection ends within the timeout."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        return True


def root3(mount_port, path):
    """The file handle of an export."""
    with Client(mount_port) as client:
        client.send(call(1, MOUNT, 3, 1, opaque(str(path).encode()), 0))
        _, results = client.reply()
    status, size = struct.unpack(">II", results[:8])
    assert status == 0, status
    return results[8:8 + size]


class Stub:
    """A server on a free port: `answer(connection, message)` is called for each call and returns
    what is sent back, or nothing. `connections` are those it has accepted."""

    def __init__(self, answer=lambda _, message: reply(struct.unpack(">I", message[:4])[0]),
                 host="127.0.0.1"):
        self.answer = answer
        self.listener = socket.create_server((host, 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.connections, self.calls, self.ends = [], [], []
        self.changed = threading.Condition()

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with self.changed:
                    self.connections.append(connection)
                    self.changed.notify_all()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        end = "closed"
        try:
            while True:
                message = message_of(connection)
                with self.changed:
                    self.calls.append(message)
                    self.changed.notify_all()
                if answer := self.answer(connection, message):
                    connection.sendall(answer)
        except ConnectionResetError:
            end = "reset"
        except (ConnectionError, OSError):
            pass
        with self.changed:
            self.ends.append(end)
            self.changed.notify_all()

    def xids(self):
        return [struct.unpack(">I", message[:4])[0] for message in self.calls]

    def wait(self, condition, timeout=60):
        with self.changed:
            assert self.changed.wait_for(condition, timeout), (self.xids(), self.ends)
