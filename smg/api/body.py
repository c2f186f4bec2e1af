"""Decodes bodies without letting other streams wait (case PF-01)."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from smg.core.background import beside
from smg.core.turns import LONG_BODY, turn

P = ParamSpec("P")
T = TypeVar("T")

# Bodies above this many bytes are decoded in a thread, so that other streams do not wait for it.
LARGE_BODY = 1 << 20


async def decoded(decode: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **kwargs: P.kwargs) -> T:
    """``decode(body, …)``: at once when ``body`` is short, in turn when it is long, in a thread when it is large.

    Raises what ``decode`` raises.
    """
    if len(body) > LARGE_BODY:
        return await beside(decode, body, *args, **kwargs)
    if len(body) > LONG_BODY:
        await turn()
    return decode(body, *args, **kwargs)
