"""Base64 decoding without the GIL."""

def decode(text: str) -> bytes:
    """The bytes that ``text`` stands for; ASCII whitespace and missing padding are forgiven.

    Raises ValueError for characters outside the standard alphabet, padding in the middle or too much of it, and
    lengths that no bytes have.
    """
