"""Beside the reference gateway: only with ``SMG_REFERENCE`` naming its program."""
