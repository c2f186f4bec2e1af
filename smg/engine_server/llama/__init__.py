"""The embedded engine: llama.cpp on the CPU behind the vLLM contract."""

from smg.engine_server.llama.engine import DEFAULT_NAME, LlamaEngine, default_model

__all__ = ["DEFAULT_NAME", "LlamaEngine", "default_model"]
