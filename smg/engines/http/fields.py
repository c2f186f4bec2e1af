"""A JSON body as its members, each still the bytes the client sent: read without decoding, patched without re-encoding.

What of a body is not patched reaches the engine as it came: numbers keep their digits, strings their escapes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.core.errors import GatewayError

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Fields:
    """The members of one body.

    Raises:
        GatewayError: ``json_parse_error``: it is no JSON object.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self._members = _decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise GatewayError("json_parse_error", "the body is not a JSON object") from None
        self._body: bytes | None = body

    def get(self, name: str) -> Any:
        """A member's value, decoded; None when it is missing, null, or not JSON."""
        raw = self._members.get(name)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None

    def text(self, name: str) -> str:
        """A member that is a string, else an empty one."""
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def view(self, name: str) -> memoryview:
        """A member's bytes, where they lie in the body; empty when it is missing or null."""
        raw = self._members.get(name)
        found = memoryview(b"" if raw is None else raw)
        return found[:0] if bytes(found[:5]) == b"null" else found

    def put(self, name: str, value: Any) -> None:
        """Replace or add a member."""
        self._members[name] = msgspec.Raw(msgspec.json.encode(value))
        self._body = None

    def body_with(self, members: Mapping[str, Any]) -> bytes:
        """The whole again with further members, which these stay without."""
        if not members:
            return self.body()
        return msgspec.json.encode(
            self._members | {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in members.items()}
        )

    def body(self) -> bytes:
        """The whole again; the client's own bytes when nothing was put."""
        if self._body is None:
            self._body = msgspec.json.encode(self._members)
        return self._body
