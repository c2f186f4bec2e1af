"""Where a bracketed expression in Python's notation ends, followed byte by byte as it arrives (spec parsers 6.5)."""

class PythonScan:
    """Follows one expression, which begins with its opening bracket."""

    @property
    def over(self) -> bool:
        """Whether the outermost bracket has closed."""

    @property
    def stuck(self) -> bool:
        """Whether ``run`` has stopped at a bracket that has no place."""

    def run(self, text: str, at: int = 0) -> int:
        """Follow ``text`` from ``at`` on, where a row may have followed it already, and return where that ends.

        Raises IndexError for a place outside the text.
        """

    def follow(self, text: str) -> int:
        """Do what a row does with ``text``, and return how many of its characters were taken."""
