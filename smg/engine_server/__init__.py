"""Engines we serve ourselves: llama (real, embedded) and mock (scriptable)."""
