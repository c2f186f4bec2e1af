"""Calls of a transport, read to their end."""

import pytest

from smg.core.errors import GatewayError


async def read_all(call):
    messages = []
    while fresh := await call.read():
        messages += fresh
    return messages


async def failure(call):
    """The error that ends the call, whatever came before."""
    with pytest.raises(GatewayError) as caught:
        await read_all(call)
    return caught.value
