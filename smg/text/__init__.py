"""Tokenizer loading, chat templates, encode cache, StreamTable's Python twin, stop rules."""
