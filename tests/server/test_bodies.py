"""Bodies as they come from a connection: whole, and in memory once."""

import tracemalloc

import pytest

from smg.server.protocol import GatewayRequest

MB = 1 << 20


class Pieces:
    """A connection on which ``pieces`` arrive."""

    def __init__(self, pieces):
        self._pieces = iter(pieces)
        self.request_body = True

    async def read(self):
        data = next(self._pieces, None)
        self.request_body = data is not None
        return data


async def received(pieces) -> bytes:
    request = GatewayRequest.__new__(GatewayRequest)
    request.body, request.stream = b"", Pieces(pieces)
    await request.receive_body()
    return request.body


@pytest.mark.parametrize("pieces", [[], [b"all"], [b"a", b"", b"bc"], [b"", b"a"], [b"ab"] * 1000])
async def test_a_body_is_all_its_pieces(pieces):
    body = await received(pieces)
    assert (type(body), body) == (bytes, b"".join(pieces))


async def test_an_upload_is_there_once():
    tracemalloc.start()
    try:
        body = await received(bytes(1 << 16) for _ in range(256))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(body) == 16 * MB
    # It grows by an eighth at a time.
    assert most < 16 * MB * 9 / 8 + MB
