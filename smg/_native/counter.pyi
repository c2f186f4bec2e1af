"""Running numbers of one response's events, for Python and for rows that are fed without it."""

class Counter:
    """Running event number of one response (``sequence_number``), shared by all its templates.

    ``value`` is the next number, of 63 bits (OverflowError beyond). Rows that go direct take theirs from it as well,
    always between two calls of Python: who reads it has the number that comes next on the wire.
    """

    value: int

    def __init__(self, value: int = 0) -> None: ...
    def take(self) -> int:
        """Return the next number and count it."""
