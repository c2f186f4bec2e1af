"""JSON followed byte by byte as it arrives: how far it is valid as it stands (spec parsers 3)."""

class JsonScan:
    """Follows one JSON value, whose text the caller passes on."""

    @property
    def over(self) -> bool:
        """Whether the value has ended."""

    @property
    def depth(self) -> int:
        """How many brackets are open."""

    @property
    def in_string(self) -> bool:
        """Whether the text is inside a string."""

    @property
    def stuck(self) -> bool:
        """Whether ``run`` has stopped at what is not for it to judge; False where it waits for more."""

    def run(self, text: str, at: int = 0) -> int:
        """Take what can be taken of ``text`` from ``at`` on, and return where that ends.

        Raises IndexError for a place outside the text.
        """

    def follow(self, text: str) -> int:
        """Take what a row would take of ``text``, within what was lent, and return where that ends."""

    def take(self, char: str) -> bool:
        """Take a bracket, a colon or a comma that ``run`` has left; False where it has no place."""

    def scalar(self, quoted: bool) -> bool:
        """Take a scalar; a quoted one is open from now on. False where it has no place."""

    def close_string(self) -> None:
        """Take the quote that ends a string outside of any bracket."""

    def lend(self, room: int) -> None:
        """Allow a row to take up to ``room`` bytes."""

    def followed(self) -> int:
        """Return how many characters rows have taken since the last call."""
