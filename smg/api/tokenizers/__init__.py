"""The tokenizers of the gateway, for admins: ``/v1/tokenizers`` (spec api-and-ops 1.3 and 1.10)."""

from smg.api.tokenizers.routes import ROUTES

__all__ = ["ROUTES"]
