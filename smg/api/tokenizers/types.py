"""The wire types of these routes."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from smg.fleet.records import JobStatus


class AddBody(msgspec.Struct):
    """``source`` is a directory or file of the gateway's machine, or a name on the hub (``org/name@revision``).

    ``chat_template_path`` is a template file of that machine that wins over the tokenizer's own.
    """

    needs: ClassVar[tuple[str, ...]] = ("name", "source")

    name: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    source: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    chat_template_path: str | None = None


class Accepted(msgspec.Struct):
    """The work goes on; ``/v1/tokenizers/{id}/status`` tells how."""

    id: str
    status: JobStatus
    message: str


class TokenizerInfo(msgspec.Struct):
    """``vocab_size`` is null while it is not known. ``origin``: an admin added it, or a model brought it."""

    id: str
    name: str
    source: str
    vocab_size: int | None
    origin: Literal["added", "model"]


class TokenizerList(msgspec.Struct):
    tokenizers: list[TokenizerInfo]


class TokenizerStatus(msgspec.Struct):
    """``message`` says what is wrong when ``status`` is ``failed``."""

    id: str
    name: str
    status: JobStatus
    message: str


class Deleted(msgspec.Struct):
    success: bool
    message: str
