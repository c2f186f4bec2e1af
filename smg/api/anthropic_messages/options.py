"""What only the encoder of this dialect needs to know of a request."""

from typing import Literal, TypeAlias

import msgspec

# What becomes of the model's reasoning: blocks with their text, blocks without it, or nothing.
Display: TypeAlias = Literal["shown", "omitted", "dropped"]


class MessagesOptions(msgspec.Struct, frozen=True):
    thinking: Display = "dropped"
