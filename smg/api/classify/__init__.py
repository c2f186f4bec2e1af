"""``POST /v1/classify``: the label of each text, by models with a classification head (spec text-pipeline 15)."""

from smg.api.classify.handler import classify

__all__ = ["classify"]
