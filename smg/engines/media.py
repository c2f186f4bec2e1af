"""Media in engine messages: what the contracts' multimodal messages share (spec engine-contract 2.13, multimodal 12).

A tensor is megabytes, so it never passes through a generated message, which would copy it twice while holding the GIL.
The message is serialized without it, and the field is put behind: protobuf merges what comes later into what was there.
Or it goes to a file of shared memory, and what names that goes in its place (``parcel.py``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from smg._native.joined import join
from smg.core.backends import EngineRequest
from smg.core.media import MediaInputs, Tensor
from smg.engines.parcel import Parcel

# ``smg.grpc.common.Modality``.
MODALITIES = {"image": 1, "audio": 2, "video": 3}

_LENGTH_DELIMITED = 2


def with_tensor(message: bytes, kind: Any, field: str, inputs: MediaInputs | None, parcel: Parcel) -> bytes:
    """``message``, a serialized ``kind``, with the bytes of the primary tensor of ``inputs`` if there is one.

    They go into ``mm_inputs.pixel_values``, to ``field`` of its TensorData. Copies without the GIL.
    """
    if inputs is None or inputs.tensor is None:
        return message
    return join([message, *payload(kind, ("mm_inputs", "pixel_values"), field, inputs.tensor, parcel)])


def payload(kind: Any, path: Sequence[str], field: str, value: Tensor, parcel: Parcel) -> list[Any]:
    """The buffers of the TensorData at ``path`` of a ``kind``: the bytes of ``value`` in ``field``, or their file."""
    handle = parcel.put(value)
    if handle is None:
        return nested(kind, (*path, field), value.pieces)
    return nested(kind, (*path, "shm"), [handle.SerializeToString()])


def row_tensors(
    kind: Any, tensor_kind: Any, field: str, inputs: MediaInputs, called: Mapping[str, str], parcel: Parcel
) -> list[Any]:
    """The buffers of the side tensors that have an entry per row, to be put behind a serialized ``kind``.

    They are large, too, and go into ``mm_inputs.model_specific_tensors`` by the names of ``called``.
    """
    entry = kind.DESCRIPTOR.fields_by_name["mm_inputs"].message_type.fields_by_name["model_specific_tensors"]
    key, value = (entry.message_type.fields_by_name[name].number for name in ("key", "value"))
    out: list[Any] = []
    for name in inputs.flat:
        side = inputs.side[name]
        described = tensor(tensor_kind, side, None, parcel).SerializeToString()
        filled = [described, *payload(tensor_kind, (), field, side, parcel)]
        pair = [*_enclosed([key], [called.get(name, name).encode()]), *_enclosed([value], filled)]
        out += nested(kind, ("mm_inputs", "model_specific_tensors"), pair)
    return out


def nested(kind: Any, path: Sequence[str], pieces: Sequence[Any]) -> list[Any]:
    """The buffers of one field on the wire: the headers of all messages of ``path``, then ``pieces``.

    ``path`` names message fields from ``kind`` on, and last a field of bytes or of a message.
    """
    descriptor, numbers = kind.DESCRIPTOR, []
    for name in path:
        field = descriptor.fields_by_name[name]
        numbers.append(field.number)
        descriptor = field.message_type
    return _enclosed(numbers, pieces)


def _enclosed(numbers: Sequence[int], pieces: Sequence[Any]) -> list[Any]:
    """``pieces`` behind the headers of the fields ``numbers``, the outermost first."""
    head, size = b"", sum(memoryview(piece).nbytes for piece in pieces)
    for number in reversed(numbers):
        head = _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size + len(head)) + head
    return [head, *pieces]


def tensor(kind: Any, value: Tensor, field: str | None, parcel: Parcel) -> Any:
    """A TensorData of ``value``; its bytes go into ``field`` or a file, or nowhere when ``field`` is None."""
    message = kind(shape=value.shape, dtype=value.dtype)
    if field is not None:
        handle = parcel.put(value)
        if handle is None:
            setattr(message, field, value.tobytes())
        else:
            message.shm.CopyFrom(handle)
    return message


def ranges(kind: Any, found: Sequence[tuple[int, int]]) -> list[Any]:
    """PlaceholderRange messages of (offset, length) pairs."""
    return [kind(offset=offset, length=length) for offset, length in found]


def anchored_ids(request: EngineRequest, media: MediaInputs) -> list[int]:
    """The prompt for an engine that expands placeholders itself; ids behind the expanded prompt stay."""
    return [*media.anchored, *request.ids[media.expanded :]]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
