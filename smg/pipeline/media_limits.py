"""What engines tell of their own limits on media (spec multimodal 6): their front ends would hold requests to them, but
media that are preprocessed here pass these by, and an item that an engine never has room for waits there for ever."""

from collections.abc import Iterator, Sequence

from smg.core.errors import GatewayError
from smg.core.media import MediaInputs
from smg.core.request import MediaPart
from smg.fleet.records import WorkerRecord

_ITEMS = "mm_item_limits"  # such as ``image=8,video=2``
_BUDGET = "mm_encoder_budget"  # tokens of features that one item may have


def most_items(workers: Sequence[WorkerRecord], kind: str) -> int | None:
    """Items of ``kind`` that a request may have, by the strictest engine; None where none tells."""
    told = [_number(count) for worker in workers for name, count in _pairs(worker) if name == kind]
    return min((count for count in told if count), default=None)


def check_budget(workers: Sequence[WorkerRecord], wanted: Sequence[tuple[str, MediaPart]], inputs: MediaInputs) -> None:
    """Refuse an item that some engine could never work on. ``wanted`` are the request's parts, in order.

    Raises:
        GatewayError: ``media_too_large`` (400), naming the part.
    """
    told = [_number(worker.labels.get(_BUDGET, "")) for worker in workers]
    budget = min((count for count in told if count), default=0)
    paths = {kind: iter([path for path, part in wanted if part.kind == kind]) for kind in ("image", "audio", "video")}
    for item in inputs.items if budget else ():
        path = next(paths[item.modality], None)
        tokens = sum(length for _, length in item.patches)
        if tokens > budget:
            message = f"the {item.modality} becomes {tokens} tokens, but the engines of this model take {budget}"
            raise GatewayError("media_too_large", message, param=path)


def _pairs(worker: WorkerRecord) -> Iterator[tuple[str, str]]:
    for pair in worker.labels.get(_ITEMS, "").split(","):
        name, _, count = pair.partition("=")
        yield name.strip(), count.strip()


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
