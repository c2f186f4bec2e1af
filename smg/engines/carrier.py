"""Which transport carries a worker's generations, by the name that operators see."""

from functools import lru_cache

from smg.core.backends import BackendKind
from smg.engines.transport.automatic import obstacle
from smg.engines.transport.table import AUTO


@lru_cache(maxsize=8192)
def carrier(url: str, kind: BackendKind, choice: str) -> str:
    """``http``, ``zmq``, or the transport of gRPC contracts that ``choice`` comes to at a worker's ``url``.

    ``choice`` is what ``--engine-transport`` says.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if kind == "raw" or scheme in ("http", "https"):
        return "http"
    if scheme in ("ipc", "zmq"):
        return "zmq"
    if choice != AUTO:
        return choice
    return "native" if obstacle(url) is None else "grpcio"
