"""Messages of one generation, and who takes them (DESIGN 6, the source of the pump)."""

from smg._native.wire import Layout

class Tokens:
    """New ids of one choice, of one or more chunks.

    Counts are the engine's: of the prompt the last, others the highest.
    """

    @property
    def index(self) -> int: ...
    @property
    def ids(self) -> list[int]: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def reasoning_tokens(self) -> int: ...

class Inlet:
    """Messages that somebody receives, for whatever consumer is attached: one that collects for Python at first.

    With ``layout``, plain chunks of that contract are collected as Tokens, else every message as bytes. So is a chunk
    whose label is not that of the one before. ``StreamFeed`` attaches a consumer that feeds rows.
    """

    def __init__(self, layout: Layout | None = None) -> None: ...
    def abandon(self) -> None:
        """Drop what has been collected: nobody will take it."""

class Intake(Inlet):
    """Messages that Python receives: ``push`` gives them to the consumer, ``take`` returns what was collected."""

    def push(self, message: bytes) -> bool:
        """Give one message to the consumer; returns whether Python has to look. Raises MemoryError."""

    def take(self) -> list[bytes | Tokens]:
        """Empty the collection: Tokens and bytes, in order. Tokens of one choice are one unless bytes lie between."""
