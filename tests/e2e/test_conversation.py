"""A conversation that grows: each turn encodes only what is new, and the engine gets exactly the right ids."""

import grpc
import pytest
from smg_grpc_proto import vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2
from tokenizers import Tokenizer

from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.script import prompt_words
from tests.engines_for_tests import mock_process
from tests.gateway import MODEL, Gateway, running, settings, wait_for

pytestmark = pytest.mark.e2e

TURNS = 20
ANSWER = 12
MESSAGE = "Question {number}: what would you say of the time, 日本 or 👩‍👩‍👧, when <|im_end|> is only text? "


def expected(library: Tokenizer, turns: list[dict[str, str]]) -> str:
    """The mock engine's answer: a function of every id of the prompt, so one wrong id gives another answer."""
    ids = []
    for turn in turns:
        ids.append(mock.IM_START)
        text = turn["role"] + "\n" + turn["content"]
        before, *after = text.split("<|im_end|>")
        ids += library.encode(before, add_special_tokens=False).ids
        for rest in after:
            # What a client types is never a control token: it is spelled by its halves.
            for piece in ("<", "|im_end|>" + rest):
                ids += library.encode(piece, add_special_tokens=False).ids
        ids += [mock.EOS, *library.encode("\n", add_special_tokens=False).ids]
    ids += [mock.IM_START, *library.encode("assistant\n", add_special_tokens=False).ids]
    return str(library.decode(prompt_words(ids, 0, ANSWER))).strip()


def reused(gateway: Gateway, lookups: int) -> float:
    """Tokens taken from the cache, once ``lookups`` prompts are counted."""
    names = ("smg_tokenizer_cache_hits_total", "smg_tokenizer_cache_misses_total")
    # Each prompt is looked up on both levels.
    wait_for(lambda: sum(map(gateway.metric, names)) == 2 * lookups, 5, "the counters")
    return gateway.metric("smg_tokenizer_cache_reused_tokens_total")


def test_a_chat_of_20_turns_reuses_ever_more_and_answers_right(tmp_path):
    library = mock.tokenizer()
    with (
        mock_process("--tokens", str(ANSWER), "--model", "mock") as address,
        running(settings(tmp_path, "--worker-urls", f"grpc://{address}")) as gateway,
    ):
        client = gateway.client()
        turns: list[dict[str, str]] = []
        sizes: list[int] = []
        seen: dict[int, float] = {}
        for number in range(1, TURNS + 1):
            turns.append({"role": "user", "content": MESSAGE.format(number=number)})
            answer = client.chat.completions.create(model="mock", messages=turns)
            text = answer.choices[0].message.content
            assert text.strip() == expected(library, turns)
            sizes.append(answer.usage.prompt_tokens)
            turns.append({"role": "assistant", "content": text})
            if number in (1, 9, 10, 19, 20):
                seen[number] = reused(gateway, number)
        assert seen[1] == 0
        # The last turn reuses all of the prompt before it but its tail: the last question and the opened answer.
        tail = sizes[1] - sizes[0]
        assert sizes[8] - tail <= seen[10] - seen[9] < sizes[9]
        assert sizes[18] - tail <= seen[20] - seen[19] < sizes[19]
        assert 0 < gateway.metric("smg_tokenizer_cache_bytes") < 1 << 20


TOPICS = ["the sea", "an old town", "rain 🌧", "bread", "the number 7", "日本"]


def forget(engine: str) -> None:
    """Have a real engine forget all prefixes."""
    with grpc.insecure_channel(engine.removeprefix("grpc://")) as channel:
        stub = vllm_engine_pb2_grpc.VllmEngineStub(channel)
        assert stub.FlushCache(common_pb2.FlushCacheRequest(timeout_s=20)).success


def test_a_real_engine_goes_on_from_what_it_holds_of_the_20_turns_before(gateway: Gateway, engine: str):
    client = gateway.client()
    options = {"model": MODEL, "temperature": 0, "max_tokens": 4}
    turns: list[dict[str, str]] = []
    cached, sizes = [], []
    for number in range(TURNS):
        turns.append({"role": "user", "content": f"{number}: {TOPICS[number % len(TOPICS)]}?"})
        answer = client.chat.completions.create(messages=turns, **options)
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        sizes.append(answer.usage.prompt_tokens)
        turns.append({"role": "assistant", "content": answer.choices[0].message.content})
    # All of the prompt before is there, and what was answered to it.
    assert all(before < now < size for before, now, size in zip(sizes, cached[1:], sizes[1:], strict=False))
    # What was answered from the cache is what is answered without it.
    forget(engine)
    again = client.chat.completions.create(messages=turns[:-1], **options)
    assert again.usage.prompt_tokens_details.cached_tokens == 0
    assert again.choices[0].message.content == turns[-1]["content"]
