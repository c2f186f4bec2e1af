"""The processes of one gateway: supervisor, request workers with their Sanic application, life and end of both.

Public API: ``Server(settings).start()`` runs a gateway beside the calling program, ``Server(settings).run()`` in it.
"""

from smg.server.handle import RunningServer, Server

__all__ = ["RunningServer", "Server"]
