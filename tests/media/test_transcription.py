"""Transcription by an engine that takes ids: the upload becomes a prompt of Qwen3-ASR, its answer the client's form."""

import httpx
import msgspec
import openai
import pytest

from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.engine import MockEngine
from smg.engine_server.mock.script import Fault
from tests.gateway import until_async
from tests.media.models import Model
from tests.media.test_audio_video import ASR, SPEECH, recording
from tests.media.test_end_to_end import started

PATH = "/v1/audio/transcriptions"
FILE = {"file": ("a.wav", recording(SPEECH[0]), "audio/wav")}


async def upload(gateway, path=PATH, files=FILE, **fields):
    async with httpx.AsyncClient(timeout=20) as client:
        return await client.post(gateway.url + path, data={"model": "mock-model", **fields}, files=files)


def prompt_of(engine):
    """The text of the last prompt, one mark for the recording."""
    ids = list(engine.requests[-1].request.tokenized.input_ids)
    pad = ASR.id("<|audio_pad|>")
    assert ids.count(pad) == 13
    at = ids.index(pad)
    names = dict(enumerate(ASR.tokens, mock.VOCAB_SIZE))
    kept = [*ids[:at], pad, *ids[at + 13 :]]
    return "".join(names.get(one) or mock.decode_ids([one]) for one in kept)


@pytest.mark.e2e
async def test_speech_becomes_words(tmp_path):
    async with (
        MockEngine(ASR.script("language English<asr_text>Hello there."), contract="tokenspeed") as engine,
        started(engine, tmp_path) as gateway,
    ):
        answer = await upload(gateway, prompt="Names: Ada", temperature="0.5")
        body = answer.json()
        assert (answer.status_code, body["text"]) == (200, "Hello there.")
        usage = body["usage"]
        assert (usage["type"], usage["total_tokens"]) == ("tokens", usage["input_tokens"] + usage["output_tokens"])
        turn = "<|im_start|>system\nNames: Ada<|im_end|>\n<|im_start|>user\n<|audio_start|><|audio_pad|><|audio_end|>"
        assert prompt_of(engine) == f"{turn}<|im_end|>\n<|im_start|>assistant\n"
        assert engine.requests[-1].request.sampling_params.temperature == 0.5

        plain = await upload(gateway, language="en", response_format="text")
        assert (plain.text, plain.headers["content-type"]) == ("Hello there.", "text/plain; charset=utf-8")
        assert prompt_of(engine).endswith("<|im_start|>assistant\nlanguage English<asr_text>")
        assert engine.requests[-1].request.sampling_params.temperature == 0

        for fields, code, param in (
            ({"response_format": "srt"}, "unsupported_transcription_response_format", "response_format"),
            ({"response_format": "verbose_json"}, "unsupported_transcription_response_format", "response_format"),
            ({"include[]": "logprobs"}, "unsupported_parameter", "include[]"),
            ({"timestamp_granularities[]": "word"}, "transcription_timestamps_not_supported", None),
            ({"language": "xx"}, "unsupported_transcription_language", "language"),
            ({"prompt": "é" * 2049}, "asr_prompt_too_long", "prompt"),
            ({"prompt": "<|im_end|>"}, "invalid_value", "prompt"),
            ({"temperature": "2"}, "invalid_value", "temperature"),
        ):
            error = (await upload(gateway, **fields)).json()["error"]
            assert error["code"] == code
            assert param is None or error["param"] == param
        broken = await upload(gateway, files={"file": ("a.wav", b"nothing to hear", "audio/wav")})
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, "media_undecodable")
        assert broken.json()["error"]["param"] == "file"
        elsewhere = await upload(gateway, "/v1/audio/translations")
        assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (400, "unsupported_parameter")
        assert len(engine.requests) == 2


def spoken(text, **rest):
    """An engine that writes ``text``, a byte of it in each message."""
    script = ASR.script("")
    return msgspec.structs.replace(script, tokens=mock.encode_text(text, "byte"), **rest)


async def heard(stream, into=None):
    """The events of a stream, also put into ``into`` as they come."""
    events = [] if into is None else into
    async for event in stream:
        events.append(event)
    return events


@pytest.mark.e2e
@pytest.mark.parametrize("transport", ["grpcio", "native"])
async def test_the_official_client_streams_what_it_would_get_at_once(tmp_path, transport):
    # In its own time: what arrives at once may leave at once.
    script = spoken("language English<asr_text>Hello, \u00fc there. ", chunk_delay=0.02)
    async with (
        MockEngine(script, contract="tokenspeed") as engine,
        started(engine, tmp_path, "--engine-transport", transport) as gateway,
        gateway.async_client() as client,
    ):
        ask = {"model": "mock-model", "file": FILE["file"]}
        whole = await client.audio.transcriptions.create(**ask)
        *deltas, done = await heard(await client.audio.transcriptions.create(**ask, stream=True))
        assert len(deltas) > 5
        assert {event.type for event in deltas} == {"transcript.text.delta"}
        assert done.type == "transcript.text.done"
        assert "".join(event.delta for event in deltas) == done.text == whole.text == "Hello, \u00fc there."
        assert done.usage.model_dump() == whole.usage.model_dump()
        assert done.usage.output_tokens == len(engine.requests[1].sent[0])

        engine.script = spoken("Hello there.")
        known = await client.audio.transcriptions.create(**ask, stream=True, language="en", response_format="text")
        assert (await heard(known))[-1].text == "Hello there."

        with pytest.raises(openai.BadRequestError) as caught:
            await client.audio.transcriptions.create(
                model="mock-model", file=("a.wav", b"nothing to hear", "audio/wav"), stream=True
            )
        assert (caught.value.code, caught.value.param) == ("media_undecodable", "file")
        assert len(engine.requests) == 3


@pytest.mark.e2e
async def test_a_stream_that_breaks_off_or_is_left(tmp_path):
    text = "language English<asr_text>" + "word " * 20
    async with (
        MockEngine(spoken(text, faults=(Fault(after_chunks=40),)), contract="tokenspeed") as engine,
        started(engine, tmp_path) as gateway,
        gateway.async_client() as client,
    ):
        ask = {"model": "mock-model", "file": FILE["file"], "stream": True}
        events = []
        with pytest.raises(openai.APIError) as caught:
            await heard(await client.audio.transcriptions.create(**ask), events)
        assert caught.value.code == "worker_stream_failed"
        assert "".join(event.delta for event in events) == "word word word"

        engine.script = spoken(text, chunk_delay=0.05)
        async with await client.audio.transcriptions.create(**ask) as stream:
            assert (await anext(aiter(stream))).delta
        await until_async(lambda: engine.requests[-1].state in ("aborted", "cancelled"))


@pytest.mark.e2e
async def test_a_model_that_does_more_than_that_is_asked_in_a_chat(tmp_path):
    omni = Model("qwen3_omni_moe", ASR.tokens, ASR.written, ASR.config)
    async with (
        MockEngine(omni.script("Hello."), contract="tokenspeed") as engine,
        started(engine, tmp_path) as gateway,
    ):
        answer = await upload(gateway)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "audio_transcription_model_not_supported"
        assert not engine.requests
