"""Tokenizers over HTTP: ``POST /v1/tokenize`` and ``/v1/detokenize`` (spec api-and-ops 1.5; text-pipeline 6)."""

from smg.api.tokenize.handlers import detokenize, tokenize

__all__ = ["detokenize", "tokenize"]
