"""Structural tags into Lark, which llguidance reads: free text with constrained parts in it (spec parsers 7).

Where free text is followed by a fixed one, both are one lazy terminal: it ends where the fixed text first comes.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from smg.engine_server.llama import gbnf
from smg.engine_server.llama.bounds import narrowed

# Nesting that no generated tag has; the converter calls itself for each level.
_MAX_DEPTH = 64

_SPECIAL = re.compile(r"[^0-9A-Za-z\u0080-\U0010ffff]")
_ANY = "/(.|\\n)*/"


class TagError(ValueError):
    """The text is not such a tag, or has parts this engine does not know; the message tells which."""


def to_lark(text: str, separators: dict[str, Any]) -> str:
    """Translate the structural tag ``text`` (JSON). ``separators`` are llguidance's options on white space in JSON.

    Raises:
        TagError: it can't be translated.
    """
    try:
        tag = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TagError(f"the structural tag is not valid JSON: {error}") from None
    if not isinstance(tag, dict):
        raise TagError("a structural tag is an object")
    writer = _Writer(separators)
    start = writer.piece(tag["format"] if "format" in tag else _of_old(tag))
    return "\n".join([f"start: {start}", *writer.rules]) + "\n"


def _of_old(tag: dict[str, Any]) -> dict[str, Any]:
    """A tag of the first form, with ``structures`` and ``triggers``, in words of the second."""
    tags = [
        {
            "type": "tag",
            "begin": item.get("begin"),
            "content": {"type": "json_schema", "json_schema": item.get("schema", {})},
            "end": item.get("end"),
        }
        for item in tag.get("structures", ())
    ]
    return {"type": "triggered_tags", "triggers": tag.get("triggers", []), "tags": tags}


class _Writer:
    """Makes expressions; ``rules`` collects what they need beside them."""

    def __init__(self, separators: dict[str, Any]) -> None:
        self.rules: list[str] = []
        self._separators = separators
        self._depth = 0

    def piece(self, piece: Any) -> str:
        """The expression for one format."""
        kind = piece.get("type") if isinstance(piece, dict) else None
        write = getattr(self, f"_{kind}", None) if isinstance(kind, str) else None
        if write is None or self._depth > _MAX_DEPTH:
            raise TagError(f"this engine has no structural tags with a part of type {kind!r}")
        self._depth += 1
        try:
            written: str = write(piece)
        except (KeyError, TypeError, AttributeError, RecursionError):
            raise TagError(f"the structural tag has a bad part of type {kind!r}") from None
        self._depth -= 1
        return written

    def _const_string(self, piece: dict[str, Any]) -> str:
        return literal(piece["value"])

    def _json_schema(self, piece: dict[str, Any]) -> str:
        schema = narrowed(piece["json_schema"])
        if isinstance(schema, dict):
            schema = {"x-guidance": self._separators, **schema}
        return self._rule(f"%json {json.dumps(schema)}")

    def _regex(self, piece: dict[str, Any]) -> str:
        pattern = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", piece["pattern"])
        return self._terminal(f"/{pattern}/")

    def _grammar(self, piece: dict[str, Any]) -> str:
        try:
            start, rules = gbnf.to_rules(piece["grammar"], f"g{len(self.rules)}_")
        except gbnf.GrammarError as error:
            raise TagError(str(error)) from None
        self.rules += rules
        return start

    def _any_text(self, piece: dict[str, Any]) -> str:
        return self._terminal(_ANY)

    def _sequence(self, piece: dict[str, Any]) -> str:
        return "(" + " ".join(map(self.piece, piece["elements"])) + ")"

    def _or(self, piece: dict[str, Any]) -> str:
        return "(" + " | ".join(map(self.piece, piece["elements"])) + ")"

    def _optional(self, piece: dict[str, Any]) -> str:
        return f"({self.piece(piece['content'])})?"

    def _plus(self, piece: dict[str, Any]) -> str:
        return f"({self.piece(piece['content'])})+"

    def _star(self, piece: dict[str, Any]) -> str:
        return f"({self.piece(piece['content'])})*"

    def _tag(self, piece: dict[str, Any], begun: str = "") -> str:
        """A tag whose beginning ``begun`` is written already."""
        begin, end, content = piece["begin"].removeprefix(begun), piece["end"], piece["content"]
        if isinstance(content, dict) and content.get("type") == "any_text" and end:
            return f"({literal(begin)} {self._until(end)})"
        return f"({literal(begin)} {self.piece(content)} {literal(end)})"

    def _tags_with_separator(self, piece: dict[str, Any]) -> str:
        one = self._rule(" | ".join(map(self.piece, piece["tags"])))
        many = one if piece.get("stop_after_first") else f"({one} ({literal(piece['separator'])} {one})*)"
        return many if piece.get("at_least_one") else f"({many})?"

    def _triggered_tags(self, piece: dict[str, Any]) -> str:
        tags, once = piece["tags"], bool(piece.get("stop_after_first"))
        loose = [self._triggered(trigger, tags) for trigger in piece["triggers"]]
        rest = self._rule(f"({' | '.join(loose)})") if loose else ""
        text = self._any_text({})
        first = self._rule(" | ".join(map(self.piece, tags))) if piece.get("at_least_one") else ""
        if once:
            return first or f"({rest} | {text})"
        return f"({first} {rest}* {text})" if rest else f"({first} {text})"

    def _triggered(self, trigger: str, tags: Sequence[dict[str, Any]]) -> str:
        """Free text, the trigger, and the rest of one of its tags."""
        behind = [self._tag(tag, trigger) for tag in tags if tag["begin"].startswith(trigger)]
        if not behind:
            raise TagError(f"no tag begins with the trigger {trigger!r}")
        return f"({self._until(trigger)} ({' | '.join(behind)}))"

    def _until(self, text: str) -> str:
        """Any text up to where ``text`` first comes, itself included."""
        return self._rule(f"/(.|\\n)*{_SPECIAL.sub(_escape, text)}/", "[lazy]")

    def _terminal(self, expression: str) -> str:
        name = f"T{len(self.rules)}"
        self.rules.append(f"{name}: {expression}")
        return name

    def _rule(self, body: str, options: str = "") -> str:
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name}{options}: {body}")
        return name


def literal(text: str) -> str:
    """``text`` itself, each character a terminal of its own: no lexer may prefer a longer one."""
    if not text:
        return '""'
    return "(" + " ".join(f"/{_SPECIAL.sub(_escape, character)}/" for character in text) + ")"


def _escape(match: re.Match[str]) -> str:
    return f"\\x{{{ord(match.group()):X}}}"
