"""Hand-written matchers for the regular expressions that cut a text into words before byte-level BPE."""

def words(classes: bytes, kind: int, digits: int, text: str) -> list[str]:
    """Return the words of ``text``.

    ``classes`` is one byte per code point, ``kind`` a SplitKind, ``digits`` the longest run of numbers in one word (0:
    any). Raises ValueError for a table of another size, UnicodeEncodeError for unpaired surrogates.
    """
