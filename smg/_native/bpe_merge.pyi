"""Merging of byte pairs; for other native modules only."""
