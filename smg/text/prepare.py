"""From a request to token ids, off the event loop when that takes time (spec text-pipeline 0 and 8)."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import msgspec

from smg._native.id_list import compact
from smg.core.background import step_back
from smg.core.errors import GatewayError, bad_request
from smg.core.request import GenerationRequest
from smg.text.chat import TAIL, Chat
from smg.text.lazy_library import LibraryNeeded
from smg.text.registry import TextModel

# Prompts of fewer UTF-8 bytes are rendered and encoded where they are: a thread costs 0.1 ms, and what it spares the
# event loop is 0.1 to 0.5 ms, 1.6 for texts of the worst kind. The tokenizers library takes some ten times as long.
INLINE_BYTES = 4096
INLINE_BYTES_OF_LIBRARY = 512
# Templates that look back from each turn take a time that grows with the square of their number (Qwen 3: 6 ms for 140).
INLINE_TURNS = 32

T = TypeVar("T")


class Prepared(msgspec.Struct, frozen=True):
    """A prompt as ids, and what parsers and decoding must know about it.

    ``ids`` of a long prompt are an array of unsigned ints: an event loop that has to read 100,000 objects, and to free
    them, does nothing else for milliseconds (field case PF-01).
    ``prompt_tail``, ``history`` and ``thinking`` are those of ``parsing.base.Start``. ``continues``: the output goes on
    from text of the prompt (``core.stream.RowSpec.continues``).
    """

    ids: Sequence[int]
    prompt_tail: str = ""
    thinking: bool | None = None
    history: str = ""
    continues: bool = False


async def prepare(model: TextModel, request: GenerationRequest) -> Prepared:
    """Render and encode the input of ``request``, whichever of the three kinds it is.

    Raises:
        GatewayError: 400: ``process_messages_failed``, ``tokenization_failed``, ``empty_input``, or ``invalid_value``
            for what the model's template or vocabulary has no place for.
    """
    prepared = prepared_here(model, request)
    return await prepared_apart(model, request) if prepared is None else prepared


async def prepared_apart(model: TextModel, request: GenerationRequest) -> Prepared:
    """Do what ``prepare`` does on a thread of its own. Raises as ``prepare``."""
    return await apart(lambda: prepare_now(model, request))


async def apart(work: Callable[[], T]) -> T:
    """Do ``work``, which renders, encodes or decodes something long, on one of the threads for that."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)


def prepared_here(model: TextModel, request: GenerationRequest) -> Prepared | None:
    """Do what ``prepare`` does at once, if that takes no time; None: it might. Raises as ``prepare``."""
    if not _is_short(request, INLINE_BYTES if model.tokenizer.native else INLINE_BYTES_OF_LIBRARY):
        return None
    try:
        return prepare_now(model, request)
    except LibraryNeeded:
        # An event loop must not wait for it; a thread may.
        return None


def prepare_now(model: TextModel, request: GenerationRequest) -> Prepared:
    """Do what ``prepare`` does on the caller's thread."""
    if request.prompt_ids is not None:
        prepared = Prepared(_checked(request, model.tokenizer.size), continues=True)
    elif request.prompt_text is not None:
        prepared = _prompt(model, request.prompt_text, request.add_special_tokens)
    else:
        prepared = _chat(model, request)
    if not prepared.ids:
        raise GatewayError("empty_input", "the input has no tokens", param=input_path(request))
    return prepared


async def prepare_pair(model: TextModel, first: str, second: str, path: str) -> list[int]:
    """The ids of two texts as one input of a cross-encoder; ``path`` is where the body has them.

    Raises:
        GatewayError: 400: ``tokenization_failed`` where the tokenizer has no form for pairs, or ``empty_input``.
    """

    def encode() -> list[int]:
        try:
            return model.tokenizer.encode_pair(first, second)
        except LibraryNeeded:
            raise
        except Exception as error:  # the library raises bare Exception, and the texts are the client's
            message = "the model's tokenizer has no form for two texts"
            raise GatewayError("tokenization_failed", message, param=path, detail=str(error)) from error

    ids: list[int] | None = None
    if _utf8_below(first + second, INLINE_BYTES_OF_LIBRARY):
        with contextlib.suppress(LibraryNeeded):
            ids = encode()
    if ids is None:
        ids = await apart(encode)
    if not ids:
        raise GatewayError("empty_input", "the input has no tokens", param=path)
    return ids


def _chat(model: TextModel, request: GenerationRequest) -> Prepared:
    chat = model.chat(bool(request.tools))
    try:
        rendered = chat.render(request)
    except GatewayError as error:
        if error.code == "process_messages_failed" and error.param is None:
            error.param = _refused_path(chat, request)
        raise
    ids = _encode(model, rendered.prompt, False)
    return Prepared(ids, rendered.tail, rendered.thinking, rendered.history, bool(rendered.history))


def _refused_path(chat: Chat, request: GenerationRequest) -> str:
    """What of the body a template does not take: its kwargs, if the messages are taken without them."""
    if request.template_kwargs:
        with contextlib.suppress(GatewayError):
            chat.render(msgspec.structs.replace(request, template_kwargs={}))
            return "chat_template_kwargs"
    return input_path(request)


def _prompt(model: TextModel, text: str, add_special_tokens: bool) -> Prepared:
    bos = model.tokenizer.specials.bos
    ids = _encode(model, text, add_special_tokens and not (bos and text.startswith(bos))) if text else []
    return Prepared(ids, text[-TAIL:], continues=True)


def _encode(model: TextModel, text: str, add_special_tokens: bool) -> Sequence[int]:
    try:
        return compact(model.encoder.encode(text, add_special_tokens))
    except LibraryNeeded:
        raise
    except Exception as error:  # the library raises bare Exception, and the text is the client's
        raise GatewayError("tokenization_failed", "the input cannot be tokenized", detail=str(error)) from error


def _checked(request: GenerationRequest, size: int) -> Sequence[int]:
    ids = request.prompt_ids or []
    for index, token in enumerate(ids):
        if not 0 <= token < size:
            message = f"token id {token} is outside the vocabulary (0 to {size - 1})"
            raise bad_request(message, f"{request.prompt_path}[{index}]")
    return compact(list(ids))


def input_path(request: GenerationRequest) -> str:
    """Where the body has the input."""
    return "messages" if request.messages else request.prompt_path


def _is_short(request: GenerationRequest, limit: int) -> bool:
    """Whether the input is certainly of few turns and shorter than ``limit`` bytes of UTF-8, without rendering it."""
    if request.prompt_ids is not None:
        return len(request.prompt_ids) < limit
    if request.prompt_text is not None:
        return _utf8_below(request.prompt_text, limit)
    if len(request.messages) > INLINE_TURNS:
        return False
    if request.raw:
        return len(request.raw) < limit
    if request.tools or any(message.tool_calls for message in request.messages):
        return False
    texts = [message.content for message in request.messages]
    joined = "".join(text for text in texts if isinstance(text, str))
    return all(isinstance(text, str | None) for text in texts) and _utf8_below(joined, limit)


def _utf8_below(text: str, limit: int) -> bool:
    return len(text) < limit and len(text.encode()) < limit


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool per process, made after the fork when the first long prompt comes."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="smg-prepare", initializer=step_back)
