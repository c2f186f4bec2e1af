"""``POST /v1/rerank`` and ``POST /rerank``: documents by how well they answer a query (spec api-and-ops 1.5)."""

from smg.api.rerank.handler import rerank

__all__ = ["rerank"]
