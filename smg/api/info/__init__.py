"""What is served and how: ``GET /get_model_info`` and ``GET /get_server_info`` (spec api-and-ops 1.3)."""

from smg.api.info.model import ModelInfo, model_info
from smg.api.info.server import ServerInfo, server_info

__all__ = ["ModelInfo", "ServerInfo", "model_info", "server_info"]
