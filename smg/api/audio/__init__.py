"""Speech to text: ``/v1/audio/transcriptions`` and ``/v1/audio/translations`` (spec agentic-apis 9)."""

from smg.api.audio.handler import ROUTES

__all__ = ["ROUTES"]
