"""JSON string escaping and server-sent-event templates with holes, to bytes."""

def escape(text: str) -> bytes:
    """Return ``text`` as the inside of a JSON string, in UTF-8 (RFC 8259: quote, backslash, controls escaped).

    U+2028 and U+2029 stay as they are. Raises UnicodeEncodeError for unpaired surrogates.
    """

def fill(pieces: tuple[bytes, ...], holes: tuple[str, ...], text: str, sequence: int) -> bytes:
    """Join ``pieces`` with the holes' values: ``text`` escaped, ``sequence`` in decimal.

    Raises ValueError for a hole of another name or counts that do not fit, OverflowError beyond 64 bits,
    UnicodeEncodeError for unpaired surrogates.
    """
