"""Reads streamed Messages as a client would, strictly: blocks never overlap, and their numbers only grow."""

from typing import Any

import msgspec

from tests.api.serving import frames

_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


def events_of(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream; each is named like its type, and none is OpenAI's end marker."""
    events = frames(body)
    assert all(name == data["type"] for name, data in events)
    return events


def folded(body: bytes, *, counted: bool = True) -> dict[str, Any]:
    """The whole answer that a complete stream stands for; ``counted``: its beginning knows how long the prompt is."""
    events = [data for name, data in events_of(body) if name != "ping"]
    first, *middle, change, last = events
    assert (first["type"], change["type"], last) == ("message_start", "message_delta", {"type": "message_stop"})
    message = first["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    message["content"] = blocks(middle)
    started = message["usage"]
    assert not counted or all(change["usage"][name] == started[name] for name in started if "input" in name)
    return message | change["delta"] | {"usage": change["usage"]}


def blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of the events between a message's start and its end."""
    out: list[dict[str, Any]] = []
    text, inside = "", False
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert (inside, event["index"]) == (False, len(out))
                inside, text = True, ""
                out.append(event["content_block"])
                assert not any(out[-1].get(name) for name in ("text", "thinking", "signature", "input"))
            case "content_block_delta":
                assert (inside, event["index"]) == (True, len(out) - 1)
                delta, block = event["delta"], out[-1]
                if delta["type"] == "signature_delta":
                    assert not block["signature"]
                    block["signature"] = delta["signature"]
                    continue
                kind, field = _DELTAS[block["type"]]
                assert delta["type"] == kind
                assert not block.get("signature"), "nothing follows a signature"
                text += delta[field]
            case "content_block_stop":
                assert (inside, event["index"]) == (True, len(out) - 1)
                inside = False
                _close(out[-1], text)
    assert not inside
    return out


def _close(block: dict[str, Any], text: str) -> None:
    if block["type"] != "tool_use":
        block[_DELTAS[block["type"]][1]] = text
        return
    try:
        value = msgspec.json.decode(text.strip() or "{}")
    except (msgspec.MsgspecError, UnicodeError):
        value = None
    # A buffered answer has an object in any case.
    block["input"] = value if isinstance(value, dict) else {"INVALID_JSON": text}


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """``message`` without the ids of calls, which are new each time."""
    content = []
    for block in message["content"]:
        if block["type"] == "tool_use":
            assert block["id"].startswith("toolu_")
            assert len(block["id"]) == len("toolu_") + 24
            block = block | {"id": "toolu"}
        content.append(block)
    return message | {"content": content}
