"""Waits a moment for a tokenizer that this process is still loading."""

import asyncio

from smg.fleet.records import ModelRecord
from smg.text.registry import TextModel, TextRegistry

# Seconds a request waits.
LOAD_PATIENCE = 10.0


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
