"""Log probabilities of a prompt, which one SGLang server has computed for the answer of another (spec routing 5).

Only its own ``/generate`` has them: lists in ``meta_info``, in the answer as a whole and in every event of a stream.
"""

from typing import Any

import msgspec

from smg.engines.http.sse import Events, data_of

_NAMES = ("input_token_logprobs", "input_top_logprobs", "input_token_ids_logprobs")


class PromptLogprobs:
    """What ``answer``, a prefill engine's, tells of the prompt of each generation; ``stream``: it is events."""

    def __init__(self, answer: bytes, *, stream: bool) -> None:
        self._found: dict[int, dict[str, list[Any]]] = {}
        values = [data_of(event) for event in Events().feed(answer)] if stream else [answer]
        for data in values:
            for number, item in _generations(_json(data)):
                told = {name: item[name] for name in _NAMES if isinstance(item.get(name), list)}
                if told:
                    self._found.setdefault(number, told)

    def whole(self, body: bytes) -> bytes:
        """``body``, the decode engine's answer, with them in front of its own; what cannot be read stays as it is."""
        value = _json(body)
        return msgspec.json.encode(value) if self._merge(value) else body

    def event(self, event: bytes) -> bytes:
        """As ``whole``, for one event of a stream."""
        value = _json(data_of(event))
        return b"data: " + msgspec.json.encode(value) + b"\n\n" if self._merge(value) else event

    def _merge(self, value: Any) -> bool:
        merged = False
        for number, item in _generations(value):
            for name, told in self._found.get(number, {}).items():
                own = item.get(name)
                item[name] = told + own if isinstance(own, list) else told
                merged = True
        return merged


def _generations(value: Any) -> list[tuple[int, dict[str, Any]]]:
    """Number and ``meta_info`` of each generation in an answer or an event."""
    found = []
    for place, item in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(item, dict) and isinstance(item.get("meta_info"), dict):
            index = item.get("index")
            found.append((index if isinstance(index, int) else place, item["meta_info"]))
    return found


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError):
        return None
