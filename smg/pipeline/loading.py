"""Waits a moment for a tokenizer that control still prepares, or that this process is still loading."""

import asyncio
from typing import Protocol

from smg.core import clock
from smg.fleet.records import FleetSnapshot, ModelRecord
from smg.text.registry import TextModel, TextRegistry

# Seconds a request waits for either.
LOAD_PATIENCE = 10.0
_POLL_SECS = 0.05


class View(Protocol):
    """The part of the fleet's view that waiting needs."""

    def snapshot(self) -> FleetSnapshot: ...


async def obtained(view: View, texts: TextRegistry, model: ModelRecord) -> ModelRecord:
    """The record of ``model`` once control has its tokenizer; as it is when that takes long, or has failed."""
    until = clock.monotonic() + LOAD_PATIENCE
    while not (model.tokenizer_dir or model.tokenizer_error or texts.ready(model)) and clock.monotonic() < until:
        await asyncio.sleep(_POLL_SECS)
        model = view.snapshot().model(model.id) or model
    return model


async def loaded(texts: TextRegistry, model: ModelRecord) -> TextModel:
    """The tokenizer and template of ``model``.

    A process that has just started is still loading them: a moment's wait is better than a 503 that the next process
    would not have given.

    Raises:
        GatewayError: ``tokenizer_not_ready`` (503), as ``TextRegistry.get``.
    """
    load = texts.ensure(model)
    if load is not None and not load.done():
        await asyncio.wait({asyncio.wrap_future(load)}, timeout=LOAD_PATIENCE)
    return texts.get(model)
