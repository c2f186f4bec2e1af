"""Transcription by engines that take ids: a recording becomes a prompt of Qwen3-ASR (spec agentic-apis 9).

The model has one form of prompt: what may help in the system turn, the recording in the user's. It answers
``language NAME<asr_text>WORDS`` (``words.py``); a language that is known is written in front of its answer.
"""

from collections.abc import Mapping

import msgspec

from smg.api.audio.words import MARK
from smg.api.hints import hints
from smg.core.errors import GatewayError, bad_request
from smg.core.events import Usage
from smg.core.request import GenerationRequest, MediaPart, Sampling
from smg.engines.http.form import Form

_PROMPT = (
    "<|im_start|>system\n{prompt}<|im_end|>\n<|im_start|>user\n<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n"
    "<|im_start|>assistant\n{known}"
)
# What a prompt must not have: it would be read as part of the form.
_SPECIAL = ("<|", MARK)
_MAX_PROMPT = 4096
_TRUE = frozenset({"true", "1"})
# The languages it was trained on, by ISO code.
_LANGUAGES = {
    "ar": "Arabic",
    "yue": "Cantonese",
    "zh": "Chinese",
    "cs": "Czech",
    "da": "Danish",
    "nl": "Dutch",
    "en": "English",
    "fil": "Filipino",
    "fi": "Finnish",
    "fr": "French",
    "de": "German",
    "el": "Greek",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "fa": "Persian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "es": "Spanish",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
}


class TranscriptionUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    type: str = "tokens"


class Transcription(msgspec.Struct):
    """The answer in the format ``json``."""

    text: str
    usage: TranscriptionUsage


def decode(form: Form, headers: Mapping[str, str]) -> GenerationRequest:
    """The generation that a form asks for.

    Raises:
        GatewayError: 400 for what these engines can't give, by the codes of spec api-and-ops 1.2, and for bad fields.
    """
    _refuse(form)
    file = form.part("file")
    assert file is not None, "the handler has checked it"
    language = _language(form.text("language"))
    prompt = _PROMPT.format(prompt=_context(form), known=f"language {language}{MARK}" if language else "")
    return GenerationRequest(
        dialect="audio_transcriptions",
        model=form.text("model"),
        prompt_text=prompt,
        add_special_tokens=False,
        sampling=Sampling(temperature=_temperature(form)),
        stream=streams(form),
        separate_reasoning=False,
        attachments=[[MediaPart("audio", data=form.content(file), media_type=file.content_type)]],
        attachments_path="file",
        hints=hints(headers),
    )


def streams(form: Form) -> bool:
    """Whether the form asks for a stream."""
    return form.text("stream").strip().lower() in _TRUE


def is_plain(form: Form) -> bool:
    """Whether the form asks for the words alone, as plain text."""
    return form.text("response_format") == "text"


def usage(counts: Usage) -> TranscriptionUsage:
    """The counts as transcriptions tell them."""
    total = counts.prompt_tokens + counts.completion_tokens
    return TranscriptionUsage(counts.prompt_tokens, counts.completion_tokens, total)


def located(error: GatewayError) -> GatewayError:
    """``error``, blaming the form's file where it blames the recording."""
    if error.param is not None and error.param.startswith("file["):
        error.param = "file"
    return error


def _refuse(form: Form) -> None:
    wanted = form.text("response_format") or "json"
    if wanted not in ("json", "text"):
        message = f"this model's engines answer in the formats json and text, not {wanted}"
        raise bad_request(message, "response_format", code="unsupported_transcription_response_format")
    for name in ("timestamp_granularities[]", "timestamp_granularities"):
        if any(form.values(name)):
            message = "this model's engines tell no timestamps"
            raise bad_request(message, name, code="transcription_timestamps_not_supported")
    for name in ("include[]", "include"):
        if any(form.values(name)):
            raise bad_request(
                "this model's transcripts come without log probabilities", name, code="unsupported_parameter"
            )


def _context(form: Form) -> str:
    prompt = form.text("prompt")
    if len(prompt.encode()) > _MAX_PROMPT:
        message = f"the prompt has more than {_MAX_PROMPT} bytes"
        raise bad_request(message, "prompt", code="asr_prompt_too_long")
    if any(special in prompt for special in _SPECIAL):
        raise bad_request("the prompt must not have special tokens", "prompt")
    return prompt


def _language(given: str) -> str:
    """The name of a language given by its name or ISO code, empty when none is."""
    wanted = given.strip().lower()
    if not wanted:
        return ""
    for code, name in _LANGUAGES.items():
        if wanted in (code, name.lower()) or wanted.startswith(f"{code}-"):
            return name
    raise GatewayError(
        "unsupported_transcription_language", f"the model does not know '{given[:40]}'", param="language"
    )


def _temperature(form: Form) -> float:
    given = form.text("temperature").strip()
    try:
        value = float(given or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise bad_request("a number from 0 to 1 is needed", "temperature")
    return value
