"""How the tensors of one dispatch reach its engine: in the message, or in files of shared memory that it names (spec
multimodal 13, engine-contract 2.13).

An engine that has read a file removes it. Where it does not, because it never got the message, failed or was told to
stop, the gateway does: a parcel is dropped as soon as the engine has sent tokens or will send none any more.
"""

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from smg_grpc_proto.generated import common_pb2

from smg.core import background, shared_memory
from smg.core.media import Tensor
from smg.core.shared_memory import Folder
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.engines")

# Labels of a worker: what is configured for it, and what its engine tells of where it runs.
TRANSPORT = "multimodal_tensor_transport"
SHM_MIN_BYTES = "multimodal_shm_min_bytes"
_NAMESPACE = "shm_namespace_id"

# Bytes from which on a tensor is worth a file.
MIN_BYTES = 65536


class Receiver(Protocol):
    """What is asked of an engine's contract; ``shared_memory``: its messages can name files."""

    @property
    def name(self) -> str: ...

    @property
    def shared_memory(self) -> bool: ...


class Parcel:
    """The tensors of one dispatch. This one puts them all into the message."""

    def put(self, tensor: Tensor) -> Any:
        """Write ``tensor`` to a file; returns what names it (a ShmHandle), None when it belongs into the message.

        May block and may run on any thread.
        """
        return None

    def drop(self) -> None:
        """Remove what files are left, soon and on another thread; idempotent. Also while ``put`` runs."""


INLINE = Parcel()


class _Counted(Parcel):
    """A parcel of ``owner`` for engines of ``runtime``; ``least`` bytes go to a file, None: never."""

    def __init__(self, owner: "TensorTransport", runtime: str, least: int | None) -> None:
        self._owner = owner
        self._runtime = runtime
        self._least = least
        self._names: list[str] = []
        self._dropped = False
        self._guard = threading.Lock()

    def put(self, tensor: Tensor) -> Any:
        if self._dropped:
            # Its request is over; what is still made of it goes nowhere.
            return None
        size = tensor.nbytes
        handle = None
        if self._least is not None and size >= max(self._least, 1):
            handle = self._written(tensor, size)
        self._owner.count(self._runtime, "inline" if handle is None else "shm", size)
        return handle

    def drop(self) -> None:
        with self._guard:
            names, self._names, self._dropped = self._names, [], True
        if names:
            # Giving back the memory of a huge tensor takes milliseconds.
            background.start(shared_memory.remove, names)

    def _written(self, tensor: Tensor, size: int) -> Any:
        folder = self._owner.folder()
        if folder is None:
            return None
        name = ""
        try:
            name, descriptor = folder.create()
            try:
                if not self._keep(name):
                    return None
                shared_memory.fill(descriptor, tensor.pieces)
            finally:
                os.close(descriptor)
        except OSError as error:
            shared_memory.remove([name])
            self._owner.failed(self._runtime, error)
            return None
        return common_pb2.ShmHandle(name=name, offset=0, nbytes=size, owner_id=folder.owner)

    def _keep(self, name: str) -> bool:
        """Note a file before anything is in it; False when the parcel was dropped meanwhile."""
        with self._guard:
            if not self._dropped:
                self._names.append(name)
                return True
        shared_memory.remove([name])
        return False


class TensorTransport:
    """Decides for one process which engines are sent tensors by shared memory, and counts.

    ``mode`` and ``least`` (bytes) are as in the settings, for workers without such labels. ``shm`` takes for granted
    that the engine shares ``/dev/shm`` with us, ``auto`` wants it to have told so.
    """

    def __init__(self, mode: str = "inline", least: int = MIN_BYTES, metrics: Metrics | None = None) -> None:
        self._mode = mode
        self._least = least
        self._metrics = metrics
        self._guard = threading.Lock()
        self._folder: Folder | None = None
        self._probed = False
        # What was last said of failed writes and of labels that say nothing of use.
        self._told = ""
        self._odd: set[str] = set()

    def parcel(self, engine: Receiver, labels: Mapping[str, str]) -> Parcel:
        """A parcel for one dispatch to ``engine``, whose worker has these labels."""
        return _Counted(self, engine.name, self._from(labels) if engine.shared_memory else None)

    def folder(self) -> Folder | None:
        """This process's files, None where there can be none, which is found out once. May block."""
        with self._guard:
            if not self._probed:
                self._probed = True
                try:
                    self._folder = Folder()
                except OSError as error:
                    log.warning("no shared memory: tensors go in messages", extra={"error": str(error)})
            return self._folder

    def count(self, runtime: str, path: str, size: int) -> None:
        """One tensor of ``size`` bytes went to an engine of ``runtime`` by ``path``."""
        if self._metrics is not None:
            self._metrics.mm_tensors_total.inc(runtime, path)
            self._metrics.mm_tensor_bytes_total.inc(runtime, path, amount=size)

    def failed(self, runtime: str, error: OSError) -> None:
        """A tensor could not be written to a file, and goes in its message instead."""
        if self._metrics is not None:
            self._metrics.mm_shm_write_failures_total.inc(runtime)
        why = error.strerror or str(error)
        if why != self._told:
            self._told = why
            log.warning("shared memory cannot be written to: tensors go in messages", extra={"error": why})

    def close(self) -> None:
        """Remove all files of this process. May block."""
        with self._guard:
            folder, self._folder, self._probed = self._folder, None, True
        if folder is not None:
            folder.close()

    def _from(self, labels: Mapping[str, str]) -> int | None:
        """Bytes from which on tensors for a worker go to files, None: they do not."""
        mode = labels.get(TRANSPORT) or self._mode
        if mode not in ("inline", "shm", "auto"):
            self._complain(TRANSPORT, mode, "inline, shm or auto")
        if mode == "auto":
            ours = shared_memory.namespace_id()
            mode = "shm" if ours and labels.get(_NAMESPACE) == ours else "inline"
        if mode != "shm":
            return None
        told = labels.get(SHM_MIN_BYTES, "")
        if told.isascii() and told.isdigit():
            return int(told)
        if told:
            self._complain(SHM_MIN_BYTES, told, "a number of bytes")
        return self._least

    def _complain(self, label: str, value: str, wanted: str) -> None:
        """Say once that a worker's label is of no use."""
        if f"{label}={value}" not in self._odd:
            self._odd.add(f"{label}={value}")
            log.warning("the label %s of a worker is %r, not %s", label, value, wanted)
