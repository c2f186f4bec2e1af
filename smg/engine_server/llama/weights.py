"""A copy of a GGUF with its small weights expanded, made once and kept.

llama.cpp multiplies quantised weights with activations rounded to 8 bits, by code that for some formats (Q4_1 among
them) gains nothing from long prompts. Measured with SmolLM2-135M on one x86 core, milliseconds of CPU time per token:

=========  =======  ==============  ==============
weights    prefill  decode, 1 slot  decode, 8 slots
=========  =======  ==============  ==============
Q4_1       10.9     19              14
F16         7.9     43               14
Q8_0        6.6     22                9
=========  =======  ==============  ==============

Of thirty simple questions the three get 21, 20 and 19 right, which is the same; but F16 mostly answers as the model in
bfloat16 does ("The capital of France is Paris."), where activations of 8 bits drift off (into French, there). The time
of F16 for one slot is that of two rows: a lone row has company (see ``model``).
"""

import contextlib
import fcntl
import hashlib
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from smg.core import clock
from smg.engine_server.llama import gguf_metadata

Weights: TypeAlias = Literal["file", "f16", "q8"]

# GGUF's numbers of file types.
_FILE_TYPES = {"f16": 1, "q8": 7}
# Types that are left as they are: floats, integers and 8 bits.
_WIDE = ("F16", "F32", "F64", "BF16", "I8", "I16", "I32", "I64", "Q8_0", "Q8_1", "Q8_K")


def expanded(path: Path, weights: Weights, folder: Path, tell: Callable[[str], None]) -> Path:
    """Return the GGUF to load for ``path``: itself for ``file``, or where nothing can be expanded, else a kept copy.

    The copy is in ``folder`` (made when missing), named by the content of ``path``. ``tell`` gets lines for the user:
    it takes seconds at first. When there is no room for the copy, or the gguf package is missing, the user is told and
    ``path`` serves as it is.
    """
    if weights == "file":
        return path
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = folder / f"{path.stem}.{weights}.{digest[:16]}.gguf"
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(target) as partial:
            if target.is_file():
                return target
            started = clock.monotonic()
            tell(f"expanding the weights of {path.name} to {weights}, once")
            if not _expand(path, partial, weights):
                return path
            os.replace(partial, target)
            tell(f"expanded in {clock.monotonic() - started:.1f} s; kept in {target}")
    except ImportError:
        tell("the gguf package is missing, so the weights stay as they are")
        return path
    except (OSError, ValueError) as error:
        tell(f"the weights stay as they are: {getattr(error, 'strerror', None) or error}")
        return path
    return target


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[Path]:
    """The file to write ``target`` to at first, while no other process does; nothing of a failure is left."""
    partial = target.with_suffix(".partial")
    with partial.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield partial
        finally:
            partial.unlink(missing_ok=True)


def _expand(source: Path, target: Path, weights: Weights) -> bool:
    """Write ``target``; False when ``source`` has nothing to expand. Raises OSError, ValueError and ImportError."""
    import gguf

    layout = gguf_metadata.layout(source)
    wide = {gguf.GGMLQuantizationType[name].value for name in _WIDE}
    if all(tensor.kind in wide for tensor in layout.tensors):
        return False
    kind = gguf.GGMLQuantizationType.F16 if weights == "f16" else gguf.GGMLQuantizationType.Q8_0
    data = np.memmap(source, np.uint8, mode="r", offset=layout.data_at)
    with target.open("wb") as out:
        out.write(_head(source, layout, _FILE_TYPES[weights]))
        end = 0
        for tensor in layout.tensors:
            new = tensor.kind if tensor.kind in wide else kind.value
            out.write(_tensor_head(tensor, new, end))
            end = gguf_metadata.aligned(end + _size(tensor.shape, new), layout.alignment)
        # One tensor at a time in memory: models may be large.
        for tensor in layout.tensors:
            out.write(bytes(-out.tell() % layout.alignment))
            raw = data[tensor.offset : tensor.offset + _size(tensor.shape, tensor.kind)]
            out.write((raw if tensor.kind in wide else _convert(raw, tensor, kind)).tobytes())
        out.write(bytes(-out.tell() % layout.alignment))
    return True


def _head(source: Path, layout: gguf_metadata.Layout, file_type: int) -> bytes:
    """Everything before the list of tensors, with another ``general.file_type``."""
    with source.open("rb") as file:
        head = bytearray(file.read(layout.tensors_at))
    if (place := layout.places.get("general.file_type")) is not None:
        struct.pack_into("<I", head, place, file_type)
    return bytes(head)


def _tensor_head(tensor: gguf_metadata.Tensor, kind: int, offset: int) -> bytes:
    name = tensor.name.encode()
    form = f"<Q{len(name)}sI{len(tensor.shape)}QIQ"
    return struct.pack(form, len(name), name, len(tensor.shape), *tensor.shape, kind, offset)


def _size(shape: Sequence[int], kind: int) -> int:
    """Bytes of a tensor."""
    import gguf

    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    return int(math.prod(shape) // block * size)


def _convert(raw: Any, tensor: gguf_metadata.Tensor, kind: Any) -> Any:
    import gguf

    rows = raw.reshape(math.prod(tensor.shape[1:]), -1)
    return gguf.quantize(gguf.dequantize(rows, gguf.GGMLQuantizationType(tensor.kind)), kind)
