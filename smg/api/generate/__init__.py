"""SGLang's native route: ``POST /generate`` (spec api-and-ops 1.5; text-pipeline 13)."""

from smg.api.generate.dialect import Generate

__all__ = ["Generate"]
