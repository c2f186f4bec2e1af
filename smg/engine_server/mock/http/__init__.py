"""A scriptable HTTP engine (OpenAI-style, vLLM-like or SGLang-like), for tests and benchmarks."""

from smg.engine_server.mock.http.engine import MockHttpEngine, Seen
from smg.engine_server.mock.http.script import HttpFault, HttpScript

__all__ = ["HttpFault", "HttpScript", "MockHttpEngine", "Seen"]
