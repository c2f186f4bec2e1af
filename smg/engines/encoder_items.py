"""Media for encode engines: what their Encode takes (spec engine-contract 2.13, 5.4)."""

import msgspec


class MediaTensor(msgspec.Struct, frozen=True):
    """A tensor as bytes in C order; ``dtype`` as engines name it (``float32``, ``bfloat16``)."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes


class MediaItem(msgspec.Struct, frozen=True):
    """One image, video or audio clip.

    ``modality`` is ``image``, ``video`` or ``audio``, ``content_hash`` names its content. ``placeholders`` are (offset,
    length) of its tokens in the prompt, ``token`` is the id they have there.
    """

    modality: str
    content_hash: bytes
    pixels: MediaTensor
    tensors: dict[str, MediaTensor] = msgspec.field(default_factory=dict)
    placeholders: tuple[tuple[int, int], ...] = ()
    token: int | None = None
