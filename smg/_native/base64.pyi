"""Base64 decoding without the GIL."""

def decode(text: str, start: int = 0) -> bytes:
    """The bytes that ``text`` stands for from its character ``start`` on.

    ASCII whitespace and missing padding are forgiven.

    Raises ValueError for characters outside the standard alphabet, padding in the middle or too much of it, and
    lengths that no bytes have.
    """
