"""``POST /v1/embeddings`` (spec api-and-ops 1.5; text-pipeline 15; field case EM-01)."""

from smg.api.embeddings.handler import embeddings

__all__ = ["embeddings"]
