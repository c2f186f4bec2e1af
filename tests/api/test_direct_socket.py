"""A streamed answer lends its socket to native code only while the transport has nothing to send itself."""

import os
import socket
from types import SimpleNamespace

import pytest

from smg.api.sink import ResponseSink


class Transport:
    """What a connection's transport tells, and what was written to it."""

    def __init__(self, sock: socket.socket) -> None:
        self.extra = {"socket": sock, "sslcontext": None}
        self.buffered = 0
        self.closing = False
        self.written: list[bytes] = []

    def get_extra_info(self, name: str) -> object:
        return self.extra[name]

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.written.append(data)


class Http:
    """The HTTP side of a request: chunked or not."""

    def __init__(self) -> None:
        self.response_func = self.http1_response_chunked

    def http1_response_chunked(self) -> None: ...

    def http1_response_normal(self) -> None: ...


class Feeder:
    """Borrows a socket and has the end of a chunk left over."""

    last_sent = 1e9

    def __init__(self, sink: ResponseSink, rest: bytes = b"") -> None:
        self.sink, self.rest = sink, rest

    def disarm(self) -> None:
        self.sink.give_back(self.rest)


class Answer:
    """A sink over fakes, which has sent its headers."""

    def __init__(self, sock: socket.socket) -> None:
        self.transport = Transport(sock)
        self.http = Http()
        self.sent: list[tuple[bytes, bool]] = []
        request = SimpleNamespace(transport=self.transport, stream=self.http, respond=self.respond)
        self.sink = ResponseSink(request, "text/event-stream", dict)

    async def respond(self, **_: object) -> "Answer":
        return self

    async def send(self, data: bytes, end_stream: bool) -> None:
        self.sent.append((data, end_stream))
        self.transport.written.append(data)


@pytest.fixture
async def answer():
    ours, peer = socket.socketpair()
    with ours, peer:
        answer = Answer(ours)
        answer.sink.write(b"head")
        await answer.sink.drain()
        yield answer
        answer.sink.close()


def lend(answer: Answer) -> int:
    return answer.sink.lend(Feeder(answer.sink))


async def test_what_is_lent_is_a_duplicate_that_close_closes(answer):
    lent = lend(answer)
    assert os.fstat(lent).st_ino == os.fstat(answer.transport.extra["socket"].fileno()).st_ino
    assert lent != answer.transport.extra["socket"].fileno()
    answer.sink.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lent)
    assert lend(answer) == -1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: setattr(answer.transport, "buffered", 1),
        lambda answer: setattr(answer.transport, "closing", True),
        lambda answer: answer.transport.extra.update(sslcontext=object()),
        lambda answer: answer.transport.extra.update(socket=None),
        lambda answer: setattr(answer.http, "response_func", answer.http.http1_response_normal),
        lambda answer: answer.sink.write(b"to go first"),
        lambda answer: setattr(answer.sink, "started", False),
        lend,
    ],
    ids=["buffered", "closing", "tls", "no-socket", "not-chunked", "unsent", "no-headers", "lent-already"],
)
async def test_the_socket_is_not_lent_while_something_else_would_have_to_go_first(spoil, answer):
    spoil(answer)
    assert lend(answer) == -1


async def test_the_rest_of_a_chunk_goes_before_what_the_sink_sends(answer):
    feeder = Feeder(answer.sink, b"rest\r\n")
    assert answer.sink.lend(feeder) >= 0
    assert answer.sink.last_sent == feeder.last_sent
    answer.sink.write(b"next")
    await answer.sink.drain()
    assert answer.transport.written == [b"head", b"rest\r\n", b"next"]
    assert lend(answer) >= 0


async def test_nothing_is_written_to_a_transport_that_closes(answer):
    assert answer.sink.lend(Feeder(answer.sink, b"rest")) >= 0
    answer.transport.closing = True
    answer.sink.close()
    assert answer.transport.written == [b"head"]


async def test_a_chunk_that_the_transport_takes_at_once_goes_there_without_a_wait(answer):
    answer.sink.write(b"one ")
    answer.sink.write(b"two")
    assert answer.sink.flush()
    assert answer.transport.written == [b"head", b"7\r\none two\r\n"]
    assert answer.sink.flush(), "nothing is left"
    await answer.sink.finish()
    assert answer.sent[1:] == [(b"", True)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: setattr(answer.transport, "buffered", 1),
        lambda answer: setattr(answer.transport, "closing", True),
        lambda answer: answer.sink.close(),
        lend,
    ],
    ids=["buffered", "closing", "closed", "lent"],
)
async def test_a_chunk_that_has_to_wait_is_kept_for_the_drain(spoil, answer):
    spoil(answer)
    answer.sink.write(b"next")
    assert not answer.sink.flush()
    await answer.sink.drain()
    assert answer.sent[1:] == [(b"next", False)]


async def test_an_answer_that_is_not_chunked_is_left_to_sanic():
    ours, peer = socket.socketpair()
    with ours, peer:
        answer = Answer(ours)
        answer.http.response_func = answer.http.http1_response_normal
        for part in (b"head", b"next"):
            answer.sink.write(part)
            assert not answer.sink.flush()
            await answer.sink.drain()
        assert answer.sent == [(b"head", False), (b"next", False)]
        answer.sink.close()
