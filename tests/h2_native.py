"""A native connection without a network, for tests: opened streams, and what it has to send."""

from smg._native.grpc_stream import Stream
from smg._native.h2 import Connection
from smg.engines.vllm.decode import VllmDecoder
from tests import h2_peer as h2

PROTOCOL, INTERNAL, FLOW_CONTROL, CLOSED, FRAME_SIZE, REFUSED, CANCEL, CALM = 1, 2, 3, 5, 6, 7, 8, 11
WINDOW = 256 << 10


def connected(**options) -> Connection:
    """A connection whose preface has been sent and whose peer has said SETTINGS."""
    connection = Connection(**options)
    connection.feed(h2.settings())
    connection.output()
    return connection


def opened(connection: Connection, count: int = 1, tokens: bool = False, **options) -> list[Stream]:
    """Streams whose requests have been sent and answered with headers."""
    streams = [
        Stream(object(), b"\x82", b"ask", VllmDecoder.layout if tokens else None, **options) for _ in range(count)
    ]
    for stream in streams:
        connection.open(stream)
    connection.output()
    for stream in streams:
        connection.feed(h2.headers(stream.id))
    connection.take_headers()
    return streams


def sent(connection: Connection) -> list[h2.Frame]:
    return h2.parse(connection.output())
