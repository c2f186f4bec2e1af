"""The debug window over HTTP: ``GET /debug/requests`` and ``GET /debug/requests/{id}``."""

from smg.api.debug.handlers import DebugList, debug_request, debug_requests

__all__ = ["DebugList", "debug_request", "debug_requests"]
