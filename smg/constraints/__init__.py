"""Structured output: schema to engine constraint, validation of results."""
