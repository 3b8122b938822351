"""HTTP/1.1 as uvicorn reads it with httptools, which itself bounds no head."""

from typing import ClassVar, Final

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.protocol.errors import HeadTooLargeError, http_body

ONE_READ: Final = 256 * 1024
"""Bytes that a transport hands over at most at once."""


class BoundedHeadProtocol(HttpToolsProtocol):
    """Answers 431 and closes the connection where a request's URL and headers are longer than `max_head_bytes`."""

    max_head_bytes: ClassVar[int]
    _head_bytes = 0
    _received = 0
    _in_head = False

    def data_received(self, data: bytes) -> None:
        """Read on; what belongs to a header that does not end is bounded as well."""
        super().data_received(data)
        if self._in_head:
            self._received += len(data)
            if self._received > self.max_head_bytes + ONE_READ and not self.transport.is_closing():
                self._head_bytes = self._received
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_bytes = self._received = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head ends."""
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read as a request, or is too long to be."""
        if self._head_bytes <= self.max_head_bytes:
            super().send_400_response(msg)
            return
        body = orjson.dumps(
            http_body(HeadTooLargeError(f"URL and headers have more than {self.max_head_bytes} bytes."))
        )
        head = (
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
        )
        self.transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.max_head_bytes:
            # The parser stops at what its callbacks raise, and has the request refused.
            raise HeadTooLargeError


def http_protocol(max_head_bytes: int) -> type[BoundedHeadProtocol]:
    """The protocol with its bound; URL, names and values of the headers count."""
    return type("HttpProtocol", (BoundedHeadProtocol,), {"max_head_bytes": max_head_bytes})
