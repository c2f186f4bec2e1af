"""Both handlers. Work that takes long is done off the event loop."""

import contextlib
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET, Raw
from sanic import Request

from smg._native.id_list import as_json
from smg.api.body import decoded
from smg.api.openai_chat.messages import messages
from smg.api.openai_chat.tools import tools
from smg.api.openai_chat.types import ChatBody
from smg.api.sampling import Token
from smg.api.tokenize.types import DetokenizeBody, Detokenized, TokenizeBody, Tokenized
from smg.core import wire
from smg.core.errors import GatewayError, bad_request
from smg.core.request import GenerationRequest
from smg.core.turns import LONG_PROMPT, turn
from smg.fleet.records import ModelRecord
from smg.pipeline.loading import loaded
from smg.pipeline.services import Services
from smg.text.lazy_library import LibraryNeeded
from smg.text.prepare import apart, prepare
from smg.text.registry import TextModel

T = TypeVar("T")

# Characters or ids that are worked on where they are: a thread would cost more than it saves.
INLINE = 512


class _Text(NamedTuple):
    """An encoded text: its ids, the same as they are encoded in the answer, and how many characters it has."""

    ids: Sequence[int]
    shown: Any
    characters: int


async def tokenize(request: Request, services: Services) -> Tokenized:
    """``POST /v1/tokenize``: the ids of texts, or of a conversation."""
    body = await decoded(wire.decode, request.body, TokenizeBody)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("exactly one of prompt and messages is needed", "prompt")
    record, text = await _model(services, body.model)
    if body.messages is not None:
        found = [await _conversation(text, body)]
    else:
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt or []
        if not prompts:
            raise bad_request("at least one prompt is needed", "prompt")
        work = partial(_encode, text, prompts, bool(body.add_special_tokens))
        found = await _run(sum(map(len, prompts)), work)
    if sum(len(each.ids) for each in found) >= LONG_PROMPT:
        # To write them down is a step of its own.
        await turn()
    return _tokenized(record, text, body, found)


async def detokenize(request: Request, services: Services) -> Detokenized:
    """``POST /v1/detokenize``: the text of ids."""
    body = await decoded(wire.decode, request.body, DetokenizeBody)
    _, text = await _model(services, body.model)
    several = bool(body.tokens) and isinstance(body.tokens[0], list)
    lists = body.tokens if several else [body.tokens]
    ids = [_ids(item, text, f"tokens[{index}]" if several else "tokens") for index, item in enumerate(lists)]
    work = partial(_decode, text, ids, body.skip_special_tokens is not False)
    texts = await _run(sum(map(len, ids)), work)
    return Detokenized(texts if several else texts[0])


async def _model(services: Services, name: str | None) -> tuple[ModelRecord, TextModel]:
    """The model called ``name``; without a name the first one, if possible one whose tokenizer is loaded.

    Raises:
        GatewayError: ``tokenizer_not_found`` (400), or ``tokenizer_not_ready`` (503).
    """
    snapshot = services.view.snapshot()
    if name and name != "unknown":
        added = snapshot.tokenizer(name)
        record = snapshot.model(name) or (None if added is None else added.as_model())
    else:
        ready = (model for model in snapshot.models if services.texts.ready(model))
        record = next(ready, snapshot.models[0] if snapshot.models else None)
    if record is None:
        message = f"there is no tokenizer for the model '{name}'" if name else "there is no tokenizer yet"
        raise GatewayError("tokenizer_not_found", message, param="model")
    return record, await loaded(services.texts, record)


async def _run(size: int, work: Callable[[], T]) -> T:
    """Do ``work`` here when it is small and an event loop may, else in a thread."""
    if size < INLINE:
        with contextlib.suppress(LibraryNeeded):
            return work()
    return await apart(work)


def _encode(text: TextModel, prompts: Sequence[str], add_special_tokens: bool) -> list[_Text]:
    try:
        return [_shown(text.tokenizer.encode(prompt, add_special_tokens), len(prompt)) for prompt in prompts]
    except LibraryNeeded:
        raise
    except Exception as error:  # the library raises bare Exception, and the text is the client's
        raise GatewayError("tokenization_failed", "the input cannot be tokenized", detail=str(error)) from error


def _shown(ids: Sequence[int], characters: int) -> _Text:
    """Many ids are written here, where no event loop waits for it."""
    return _Text(ids, Raw(as_json(ids)) if isinstance(ids, array) else ids, characters)


async def _conversation(text: TextModel, body: TokenizeBody) -> _Text:
    """The rendered conversation."""
    if body.continue_final_message and body.add_generation_prompt:
        raise bad_request("continue_final_message excludes add_generation_prompt", "continue_final_message")
    kwargs: dict[str, Any] = dict(body.chat_template_kwargs or {})
    if body.add_generation_prompt is False:
        kwargs["add_generation_prompt"] = False
    request = GenerationRequest(
        dialect="tokenize",
        model="",
        messages=messages(body.messages),
        tools=tools(ChatBody(tools=body.tools)),
        template_kwargs=kwargs,
        continue_final_message=bool(body.continue_final_message),
    )
    ids = (await prepare(text, request)).ids
    return await _run(len(ids), lambda: _shown(ids, len(text.tokenizer.decode(ids, skip_special_tokens=False))))


def _tokenized(record: ModelRecord, text: TextModel, body: TokenizeBody, found: Sequence[_Text]) -> Tokenized:
    length = record.context_length or UNSET
    strings = [_strings(text, each.ids) for each in found] if body.return_token_strs else []
    if not isinstance(body.prompt, list):
        only = found[0]
        return Tokenized(only.shown, len(only.ids), only.characters, strings[0] if strings else UNSET, length)
    return Tokenized(
        tokens=[each.shown for each in found],
        count=[len(each.ids) for each in found],
        char_count=[each.characters for each in found],
        token_strs=strings or UNSET,
        max_model_len=length,
    )


def _strings(text: TextModel, ids: Sequence[int]) -> list[str]:
    return [text.tokenizer.decode([token], skip_special_tokens=False) for token in ids]


def _ids(value: Any, text: TextModel, path: str) -> list[int]:
    ids = wire.convert(value, list[Token], path)
    for index, token in enumerate(ids):
        if token >= text.tokenizer.size:
            last = text.tokenizer.size - 1
            raise bad_request(f"token id {token} is outside the vocabulary (0 to {last})", f"{path}[{index}]")
    return ids


def _decode(text: TextModel, lists: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
    return [text.tokenizer.decode(ids, skip_special_tokens) for ids in lists]
