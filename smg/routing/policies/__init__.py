"""Routing policies: which of the ready workers takes a request. Adding one: a file here and a row in ``table.py``."""
