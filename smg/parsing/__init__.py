"""Reasoning and tool-call formats, and the one table that maps models to them."""
