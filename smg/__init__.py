"""smg-server: an LLM serving gateway.

Public API: ``Server(settings).start()`` runs a gateway beside the calling program; ``Settings`` and its groups
configure it (``smg.config.settings``).
"""

from typing import TYPE_CHECKING, Any

from smg._version import __version__

if TYPE_CHECKING:
    from smg.config import Settings
    from smg.server import Server

__all__ = ["Server", "Settings", "__version__"]


def __getattr__(name: str) -> Any:
    # On first use only: importing smg must not pull in the whole server.
    if name == "Server":
        from smg.server import Server

        return Server
    if name == "Settings":
        from smg.config import Settings

        return Settings
    raise AttributeError(f"module 'smg' has no attribute {name!r}")
