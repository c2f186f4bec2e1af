"""The golden rules of a responses stream (spec agentic-apis 11), checked while it is folded into its response."""

from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.api.serving import frames

TERMINAL = ("response.completed", "response.incomplete", "response.failed")
# What a delta of each kind adds to, in the event that ends it.
WHOLE = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_text": "text",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
_events: TypeAdapter = TypeAdapter(ResponseStreamEvent)
_response: TypeAdapter = TypeAdapter(Response)


def named(body: bytes) -> list[dict]:
    """The events of a body; their names are their types, and comments are left out."""
    found = [frame for frame in frames(body) if isinstance(frame, tuple)]
    assert all(name == event["type"] for name, event in found)
    return [event for _, event in found]


def folded(body: bytes) -> dict[str, Any]:
    """The response that the stream ends with."""
    events = named(body)
    _numbers_are_contiguous_from_zero(events)
    _there_is_one_terminal_event(events)
    _deltas_make_the_whole(events)
    _sdk_models_parse_every_event(events)
    last = events[-1]["response"]
    _items_are_opened_and_closed_once(events, last["output"])
    return last


def parsed(response: dict) -> Response:
    """The response as the official client's type, with nothing left out that it must have."""
    return _response.validate_python(response)


def without_ids(response: dict) -> dict:
    """The response as any other one that says the same: with other ids of its own and of its calls, at another time."""
    tail = response["id"].removeprefix("resp_")
    items = [{**item, "id": item["id"].replace(tail, "-")} for item in response["output"]]
    items = [{**item, "call_id": "-"} if "call_id" in item else item for item in items]
    return response | {"id": "resp_-", "output": items, "created_at": 0, "completed_at": None}


def _numbers_are_contiguous_from_zero(events: list[dict]) -> None:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def _there_is_one_terminal_event(events: list[dict]) -> None:
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] in TERMINAL for event in events] == [False] * (len(events) - 1) + [True]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


def _deltas_make_the_whole(events: list[dict]) -> None:
    texts: dict[tuple, str] = {}
    for event in events:
        kind, _, what = event["type"].rpartition(".")
        if kind in WHOLE and what in ("delta", "done"):
            place = (event["item_id"], event["output_index"], event.get("content_index"))
            if what == "delta":
                texts[place] = texts.get(place, "") + event["delta"]
            else:
                assert texts.pop(place, "") == event[WHOLE[kind]]
    assert not texts


def _items_are_opened_and_closed_once(events: list[dict], output: list[dict]) -> None:
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == list(range(len(output)))
    places = [(event["output_index"], event["item"]["id"], event["item"]["type"]) for event in added]
    assert sorted((e["output_index"], e["item"]["id"], e["item"]["type"]) for e in done) == sorted(places)
    assert [event["item"] for event in sorted(done, key=lambda event: event["output_index"])] == output
    assert len({item["id"] for item in output}) == len(output)
    for event in events:
        if "item_id" in event:
            assert output[event["output_index"]]["id"] == event["item_id"]


def _sdk_models_parse_every_event(events: list[dict]) -> None:
    for event in events:
        assert _events.validate_python(event).type == event["type"]
