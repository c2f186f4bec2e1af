"""What HTTP engines may serve: each route is a feature that a worker has or lacks (spec api-and-ops 1.4)."""

from collections.abc import Iterable, Mapping

import msgspec


class EngineRoute(msgspec.Struct, frozen=True):
    """One route: its feature's name, what it is in words, and its paths on engines, the preferred one first.

    ``dialect`` is the client dialect whose bodies and answers it takes and gives as they are.
    """

    feature: str
    text: str
    paths: tuple[str, ...]
    dialect: str = ""


CHAT = "chat_api"

ROUTES: tuple[EngineRoute, ...] = (
    EngineRoute(CHAT, "chat completions over HTTP", ("/v1/chat/completions",), "openai_chat"),
    EngineRoute("completions_api", "completions over HTTP", ("/v1/completions",), "openai_completions"),
    EngineRoute("responses_api", "responses over HTTP", ("/v1/responses",), "openai_responses"),
    EngineRoute("generate_api", "SGLang's generate over HTTP", ("/generate",), "generate"),
    EngineRoute("messages_api", "Anthropic's Messages over HTTP", ("/v1/messages",), "anthropic_messages"),
    EngineRoute(
        "messages_count_api",
        "counting tokens for Messages over HTTP",
        ("/v1/messages/count_tokens",),
        "anthropic_messages_count",
    ),
    EngineRoute("tokenize_api", "tokenizing over HTTP", ("/v1/tokenize", "/tokenize"), "tokenize"),
    EngineRoute("detokenize_api", "detokenizing over HTTP", ("/v1/detokenize", "/detokenize"), "detokenize"),
    EngineRoute(
        "transcriptions_api",
        "transcription of audio over HTTP",
        ("/v1/audio/transcriptions",),
        "audio_transcriptions",
    ),
    EngineRoute(
        "translations_api", "translation of audio over HTTP", ("/v1/audio/translations",), "audio_translations"
    ),
)
BY_DIALECT: Mapping[str, EngineRoute] = {route.dialect: route for route in ROUTES}
# Those whose bodies have no place for what two engines of a pair are told of each other.
UNPAIRED = frozenset({"messages_api", "messages_count_api"})
GENERATING = frozenset({"chat_api", "completions_api", "responses_api", "generate_api", "messages_api"})

# What an engine is taken to serve that does not list its paths. Nobody is sent audio by routing alone, so one that may
# serve it is asked, and its own refusal is the answer.
_LEAST = frozenset({"chat_api", "completions_api", "transcriptions_api", "translations_api"})
_USUAL: Mapping[str, frozenset[str]] = {
    "vllm": _LEAST | {"tokenize_api", "detokenize_api"},
    "sglang": _LEAST | {"generate_api"},
}


def features(runtime: str, paths: Iterable[str]) -> frozenset[str]:
    """Features of an engine that lists these paths (none: it lists nothing, and its kind decides)."""
    served = set(paths)
    if not served:
        return _USUAL.get(runtime, _LEAST)
    return frozenset(route.feature for route in ROUTES if not served.isdisjoint(route.paths))
