"""What libraries make again and again for tests, though it is the same each time: made once per process."""

import functools
import ssl
from typing import Any

import certifi
from sanic import Sanic
from sanic.touchup.service import TouchUp


def share_trusted_certificates() -> None:
    """Let all HTTP clients of a process have one TLS context; reading the public authorities takes 50 ms each time."""
    make = ssl.create_default_context
    shared = functools.cache(lambda: make(cafile=certifi.where()))

    def create_default_context(*purpose: Any, **sources: Any) -> ssl.SSLContext:
        return shared() if not purpose and sources == {"cafile": certifi.where()} else make(*purpose, **sources)

    ssl.create_default_context = create_default_context


def rewrite_sanic_once() -> None:
    """Let Sanic rewrite its classes for the first of applications that listen to the same signals, not for each.

    It takes 30 ms at the start of an application, and the signals are all that it depends on.
    """
    rewrite = TouchUp.run
    last: list[frozenset[str]] = []

    def run(app: Sanic[Any, Any]) -> None:
        signals = frozenset(signal.name for signal in app.signal_router.routes)
        if last != [signals]:
            rewrite(app)
            last[:] = [signals]

    TouchUp.run = staticmethod(run)  # type: ignore[method-assign, assignment]
