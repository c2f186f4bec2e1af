"""Parsers over HTTP: ``POST /parse/function_call`` and ``POST /parse/reasoning`` (spec api-and-ops 1.10)."""

from smg.api.parse.handlers import parse_function_call, parse_reasoning

__all__ = ["parse_function_call", "parse_reasoning"]
