"""Transports that carry engine contracts."""
