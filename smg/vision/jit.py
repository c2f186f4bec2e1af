"""Numba, loaded on first use and never before a fork: the ``kernel`` decorator and the compiled-code cache.

Compiling all kernels takes many seconds, so compiled code is kept in a directory whose name carries the processor,
its instruction sets and the versions of this package and of Numba: a changed machine or release never meets old code
(DESIGN 5). That directory is beside this file where the installation has been prepared (``python -m smg.vision``), else
below the state directory. Where Numba is not installed, ``smg.vision.plain`` serves instead.
"""

import contextlib
import fcntl
import hashlib
import importlib
import logging
import platform
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from smg._version import __version__
from smg.core import clock

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("smg.vision")
_lock = threading.Lock()
_COMPLETE = "complete"
_ready: ModuleType | None = None
_audio: ModuleType | None = None


def kernel(function: F) -> F:
    """Compile ``function`` without the GIL and keep the result on disk.

    Never ``parallel=True``: Numba's threading layers abort under threads and in forked children. Callers split rows
    over ``smg.vision.pool`` instead.
    """
    from numba import njit

    compiled: F = njit(nogil=True, cache=True)(function)
    return compiled


def kernels() -> ModuleType | None:
    """The module of compiled image kernels, or None while they are not ready."""
    return _ready


def audio_kernels() -> ModuleType | None:
    """The module of compiled audio kernels, or None while they are not ready."""
    return _audio


def cache_dir(state_dir: str | Path | None) -> Path:
    """Where compiled kernels are: of this installation when it has them all or without ``state_dir``, else there."""
    name = _name()
    installed = Path(__file__).parent / "__pycache__" / "kernels" / name
    if state_dir is None or (installed / _COMPLETE).exists():
        return installed
    return Path(state_dir) / "kernels" / name


def cached(state_dir: str | Path) -> bool:
    """Whether ``warm`` will find all kernels compiled; also True without Numba, where there are none."""
    try:
        return (cache_dir(state_dir) / _COMPLETE).exists()
    except PackageNotFoundError:
        return True


def warm(state_dir: str | Path | None) -> bool:
    """Load or compile every kernel; blocks for many seconds when nothing is cached, so call it from a thread.

    Of several processes with one directory, one compiles and the others wait for it. Returns whether the kernels are in
    use now. It is False without Numba and after a failed compilation, which is logged: the plain path gives the same
    pixels, only slower.
    """
    global _audio, _ready
    with _lock:
        if _ready is not None:
            return True
        began = clock.monotonic()
        try:
            import numba

            folder = cache_dir(state_dir)
            numba.config.CACHE_DIR = str(folder)
            with _alone(folder):
                known = (folder / _COMPLETE).exists()
                module = importlib.import_module("smg.vision.kernels")
                module.compile_all()
                audio = importlib.import_module("smg.vision.audio.kernels")
                audio.compile_all()
                with contextlib.suppress(OSError):
                    (folder / _COMPLETE).touch()
        except ImportError:
            _log.info("Numba is not installed: media are preprocessed by Pillow and NumPy")
            return False
        except Exception:
            _log.exception("the kernels did not compile: media are preprocessed by Pillow and NumPy")
            return False
        _ready, _audio = module, audio
        seconds = round(clock.monotonic() - began, 3)
        _log.info("the media kernels are ready", extra={"seconds": seconds, "compiled": not known})
        return True


def _name() -> str:
    # Numba's own idea of the processor is not asked: importing it takes a good part of a second.
    target = hashlib.blake2b(_processor(), digest_size=8)
    # Numba notices a changed kernel by its file's time, but not a change of what the kernel is made from.
    for name in ("kernels.py", "vectors.py", "audio/kernels.py"):
        source = Path(__file__).parent / name
        target.update(source.read_bytes())
        target.update(str(source.stat().st_mtime_ns).encode())
    versions = "-".join(f"{package}{version(package)}" for package in ("numba", "llvmlite"))
    return f"{platform.machine()}-{target.hexdigest()}-smg{__version__}-{versions}"


def _processor() -> bytes:
    """What decides which instructions the compiler uses: the model and its features."""
    try:
        first = Path("/proc/cpuinfo").read_bytes().split(b"\n\n", 1)[0]
    except OSError:
        return platform.processor().encode()
    kept = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags", b"CPU", b"Features")
    return b"\n".join(line for line in first.splitlines() if line.startswith(kept))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else compiles into ``folder`` meanwhile. Where it can't be written, everybody compiles for himself."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("wb")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
