"""Numba, loaded on first use and never before a fork: the ``kernel`` decorator and the compiled-code cache.

Compiling all kernels takes several seconds, so compiled code is kept in a directory whose name carries the processor,
its instruction sets and the versions of this package and of Numba: a changed machine or release never meets old code
(DESIGN 5). Until ``warm`` has finished, and wherever Numba is not installed, ``smg.vision.plain`` serves instead.
"""

import hashlib
import importlib
import logging
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from smg._version import __version__

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("smg.vision")
_lock = threading.Lock()
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


def cache_dir(state_dir: str | Path) -> Path:
    """Where compiled kernels are kept below ``state_dir``."""
    import numba
    from numba.core.registry import cpu_target

    # Numba notices a changed kernel by its file's time, but not a change of what the kernel is made from.
    target = hashlib.blake2b(repr(cpu_target.target_context.codegen().magic_tuple()).encode(), digest_size=8)
    for source in ("kernels.py", "vectors.py", "audio/kernels.py"):
        target.update((Path(__file__).parent / source).read_bytes())
    name = f"{platform.machine()}-{target.hexdigest()}-smg{__version__}-numba{numba.__version__}"
    return Path(state_dir) / "kernels" / name


def warm(state_dir: str | Path) -> bool:
    """Load or compile every kernel; blocks for seconds when nothing is cached, so call it from a thread.

    Returns whether the kernels are in use now. It is False without Numba and after a failed compilation, which is
    logged: the plain path gives the same pixels, only slower.
    """
    global _audio, _ready
    with _lock:
        if _ready is not None:
            return True
        try:
            import numba

            numba.config.CACHE_DIR = str(cache_dir(state_dir))
            module = importlib.import_module("smg.vision.kernels")
            module.compile_all()
            audio = importlib.import_module("smg.vision.audio.kernels")
            audio.compile_all()
        except ImportError:
            _log.info("Numba is not installed: media are preprocessed by Pillow and NumPy")
            return False
        except Exception:
            _log.exception("the kernels did not compile: media are preprocessed by Pillow and NumPy")
            return False
        _ready, _audio = module, audio
        return True
