"""A closed-loop HTTP/1.1 client that costs the machine little, from the standard library alone.

One thread, non-blocking sockets, a selector; answers are only collected while the clock runs and read afterwards.
"""

import gc
import selectors
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

HOST = "127.0.0.1"
PATIENCE = 120.0
"""Seconds without a byte after which a run is given up."""
READ_SIZE = 256 * 1024
LAST_CHUNK = b"\r\n0\r\n\r\n"


class BenchmarkError(Exception):
    """A server did not do its work; the message says what was wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP response."""

    status: int
    raw: bytes
    """The body as it came, perhaps in chunks."""
    chunked: bool
    seconds: float
    """From before the request was written until the last byte was read."""
    finished: float
    """When that was, counted from the start of the run."""

    @property
    def body(self) -> bytes:
        """The body itself."""
        if not self.chunked:
            return self.raw
        pieces: list[bytes] = []
        position = 0
        while True:
            line_end = self.raw.index(b"\r\n", position)
            size = int(self.raw[position:line_end], 16)
            if size == 0:
                return b"".join(pieces)
            pieces.append(self.raw[line_end + 2 : line_end + 2 + size])
            position = line_end + 4 + size


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """An A2A 1.0 request, ready to be written."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", "A2A-Version: 1.0"]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Connection:
    """One keep-alive connection with at most one request under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._begin()

    def _begin(self) -> None:
        self._received = bytearray()
        self._body_start = 0
        self._body_length = -1
        self._status = 0
        self._started = perf_counter()

    def send(self, data: bytes) -> None:
        """Write a request; it is small enough for the socket's buffer."""
        self._begin()
        self.socket.sendall(data)

    def receive(self, run_started: float) -> Answer | None:
        """Read what is there; the answer once it is whole."""
        data = self.socket.recv(READ_SIZE)
        if not data:
            raise BenchmarkError("the server closed the connection")
        received = self._received
        received += data
        if not self._body_start and not self._read_head():
            return None
        chunked = self._body_length < 0
        if chunked:
            # The line end before the last chunk may be the head's own.
            if not received.endswith(LAST_CHUNK, self._body_start - 2):
                return None
        elif len(received) - self._body_start < self._body_length:
            return None
        now = perf_counter()
        raw = bytes(received[self._body_start :])
        return Answer(self._status, raw, chunked, now - self._started, now - run_started)

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._received[:end]).lower()
        self._status = int(head[9:12])
        self._body_start = end + 4
        _, found, length = head.partition(b"\r\ncontent-length:")
        if found:
            self._body_length = int(length.partition(b"\r\n")[0])
        elif b"\r\ntransfer-encoding: chunked" not in head:
            raise BenchmarkError("an answer has neither a length nor chunks")
        return True


def drive(port: int, requests: Iterable[bytes], *, connections: int, seconds: float | None = None) -> list[Answer]:
    """Send the requests over keep-alive connections, each sending its next when its last is answered.

    Ends when the requests do or when the seconds are over; what is then under way is still awaited.

    Raises:
        BenchmarkError: the server closed a connection or fell silent.
    """
    waiting = iter(requests)
    answers: list[Answer] = []
    opened: list[_Connection] = []
    gc.collect()
    gc.disable()
    try:
        with selectors.DefaultSelector() as selector:
            for _ in range(connections):
                connection = _Connection(port)
                opened.append(connection)
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            started = perf_counter()
            busy = 0
            for connection, data in zip(opened, waiting, strict=False):
                connection.send(data)
                busy += 1
            while busy:
                ready = selector.select(PATIENCE)
                if not ready:
                    raise BenchmarkError(f"the server was silent for {PATIENCE:.0f} s")
                for key, _ in ready:
                    answer = key.data.receive(started)
                    if answer is None:
                        continue
                    answers.append(answer)
                    following = next(waiting, None) if seconds is None or answer.finished < seconds else None
                    if following is None:
                        # The server may close it from now on: idle connections are not kept for long.
                        selector.unregister(key.fileobj)
                        busy -= 1
                    else:
                        key.data.send(following)
    except OSError as error:
        raise BenchmarkError(f"the connection failed: {error}") from None
    finally:
        gc.enable()
        for connection in opened:
            connection.socket.close()
    return answers
