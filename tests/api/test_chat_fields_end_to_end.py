"""What each field of a chat request does, at both ends: for the client, streamed and buffered, and at the engine."""

import pytest
from msgspec.structs import replace

from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from smg.parsing.choose import choose
from tests.api.conftest import idle, say
from tests.api.serving import frames

USER = {"role": "user", "content": "hi"}
PROMPT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
(THERE,) = mock.encode_text(" there")


def assembled(chunks) -> dict:
    """Choices as a client builds them of a stream, without what only streams or only buffered answers have."""
    out: dict = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            whole = out.setdefault(choice["index"], {"content": "", "reasoning": "", "logprobs": []})
            delta = choice["delta"]
            whole["content"] += delta.get("content") or ""
            whole["reasoning"] += delta.get("reasoning_content") or ""
            whole["logprobs"] += (choice["logprobs"] or {}).get("content") or []
            if choice["finish_reason"] is not None:
                assert "reason" not in whole
                whole["reason"] = choice["finish_reason"]
                whole["matched"] = choice.get("matched_stop")
    return out


def folded(answer) -> dict:
    return {
        choice["index"]: {
            "content": choice["message"]["content"] or "",
            "reasoning": choice["message"].get("reasoning_content", ""),
            "logprobs": (choice["logprobs"] or {}).get("content") or [],
            "reason": choice["finish_reason"],
            "matched": choice.get("matched_stop"),
        }
        for choice in answer["choices"]
    }


@pytest.fixture
def ask(post, gateway, engines):
    """``await ask(**fields)``: choices on which streamed and buffered agree, the engine's request, and the answer."""

    async def ask(messages=(USER,), **fields):
        body = {"messages": list(messages)} | fields
        status, answer = await post("/v1/chat/completions", body)
        assert status == 200, answer
        status, stream = await post("/v1/chat/completions", body | {"stream": True})
        assert status == 200
        *chunks, done = frames(stream)
        assert done == "data: [DONE]"
        choices = folded(answer)
        assert assembled(chunks) == choices
        await idle(gateway, engines)
        sent = [record.request for engine in engines for record in engine.requests]
        assert sent[-1].sampling_params == sent[0].sampling_params
        return choices, sent[-1], answer

    return ask


class TestStops:
    """``stop``, ``stop_token_ids``, ``no_stop_trim`` and ``ignore_eos``."""

    @pytest.mark.parametrize(
        ("fields", "content", "matched"),
        [
            ({"stop": ["STOP"]}, "go there ", "STOP"),
            ({"stop": ["STOP"], "no_stop_trim": True}, "go there STOP", "STOP"),
            ({"stop": " the"}, "go", " the"),
            ({"stop_token_ids": [THERE]}, "go", THERE),
            ({"stop_token_ids": [THERE], "no_stop_trim": True}, "go there", THERE),
            ({"stop": ["nothing of this"]}, "go there STOP now", None),
            # A vocabulary spells a space as another letter: that letter is no space.
            ({"stop": ["Ġ"]}, "go there STOP now", None),
            # Special tokens end the output, but never show.
            ({"stop": ["<|endoftext|>"]}, "go there STOP now", None),
        ],
    )
    async def test_hidden_and_visible(self, ask, engines, fields, content, matched):
        say(engines, Script.text("go there STOP now"))
        (choice,) = (await ask(**fields))[0].values()
        assert (choice["content"], choice["reason"], choice["matched"]) == (content, "stop", matched)

    async def test_the_engine_only_hears_of_ids(self, ask, engines):
        say(engines, Script.text("go on"))
        _, sent, _ = await ask(stop=["STOP", " there"], stop_token_ids=[7])
        assert list(sent.sampling_params.stop) == []
        assert set(sent.sampling_params.stop_token_ids) == {7, THERE}

    @pytest.mark.parametrize(
        ("fewest", "stop", "content", "matched"),
        [
            # Five tokens: "a", " there", " ", "b", " there".
            (0, " there", "a", " there"),
            (1, " there", "a", " there"),
            (2, " there", "a there b", " there"),
            (4, " there", "a there b", " there"),
            (5, " there", "a there b there", None),
            # It begins in the second token and is complete in the fourth.
            (3, "re b", "a the", "re b"),
            (4, "re b", "a there b there", None),
        ],
    )
    async def test_before_min_tokens_a_stop_string_ends_nothing(self, ask, engines, fewest, stop, content, matched):
        say(engines, Script.text("a there b there"))
        choices, sent, _ = await ask(stop=[stop], min_tokens=fewest, stop_token_ids=[7], logprobs=True)
        assert (choices[0]["content"], choices[0]["matched"]) == (content, matched)
        # Engines keep the model from stop ids till then, which would change the text.
        assert set(sent.sampling_params.stop_token_ids) == ({7} if fewest or stop != " there" else {7, THERE})

    async def test_past_the_end_of_sequence(self, ask, engines):
        say(engines, Script.text("ab", split="byte"))
        choices, sent, _ = await ask(ignore_eos=True, max_tokens=5)
        assert sent.sampling_params.ignore_eos
        assert (choices[0]["content"], choices[0]["reason"]) == ("ababa", "length")

    async def test_an_end_of_sequence_in_the_middle_is_no_end_then(self, ask, engines):
        (a, b) = mock.encode_text("ab")
        say(engines, Script(tokens=[a, mock.EOS, b], eos=False))
        choices, _, _ = await ask(ignore_eos=True, max_tokens=3)
        assert (choices[0]["content"], choices[0]["reason"]) == ("ab", "length")

    async def test_special_tokens_show_when_they_are_not_skipped(self, ask, engines):
        say(engines, Script.text("a<|endoftext|>b"))
        assert (await ask())[0][0]["content"] == "ab"
        assert (await ask(skip_special_tokens=False))[0][0]["content"] == "a<|endoftext|>b"


async def test_each_of_n_choices_ends_by_itself(ask, engines):
    say(engines, Script.text("one STOP", "two", "cut off here now"))
    choices, sent, answer = await ask(n=3, stop=["STOP"], max_tokens=8, logprobs=True)
    assert sent.sampling_params.n == 3
    assert {index: (choice["content"], choice["reason"]) for index, choice in choices.items()} == {
        0: ("one ", "stop"),
        1: ("two", "stop"),
        2: ("cut off here", "length"),
    }
    # Tokens of a hidden stop string are told nowhere.
    assert "".join(row["token"] for row in choices[0]["logprobs"]) == "one "
    assert answer["usage"]["prompt_tokens"] == len(mock.encode_text(PROMPT))


async def test_sampling_reaches_the_engine(ask, engines):
    _, sent, _ = await ask(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        frequency_penalty=-1,
        presence_penalty=1.5,
        repetition_penalty=1.25,
        seed=11,
        logit_bias={"5": -100, "6": 2.5},
        max_completion_tokens=9,
        min_tokens=3,
    )
    params = sent.sampling_params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.25, 7, 0.125)
    assert (params.frequency_penalty, params.presence_penalty, params.repetition_penalty) == (-1, 1.5, 1.25)
    assert (params.seed, dict(params.logit_bias)) == (11, {5: -100, 6: 2.5})
    assert (params.max_tokens, params.min_tokens) == (9, 3)


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"regex": "a+"}, "regex", "a+"),
        ({"ebnf": "root ::= x"}, "grammar", "root ::= x"),
        ({"response_format": {"type": "json_object"}}, "json_object", True),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}},
            "json_schema",
            '{"type":"object"}',
        ),
    ],
)
async def test_constraints_reach_the_engine(ask, fields, kind, value):
    _, sent, _ = await ask(**fields)
    assert sent.sampling_params.WhichOneof("constraint") == kind
    assert getattr(sent.sampling_params, kind) == value


class TestPrompt:
    def text(self, sent) -> str:
        return mock.decode_ids(sent.tokenized.input_ids)

    async def test_the_template_renders_the_conversation(self, ask):
        assert self.text((await ask())[1]) == PROMPT

    async def test_a_continued_message_is_the_end_of_the_prompt_and_is_not_repeated(self, ask, engines):
        say(engines, Script.text(" there"))
        turns = [USER, {"role": "assistant", "content": "Hello"}]
        choices, sent, _ = await ask(turns, continue_final_message=True)
        assert self.text(sent) == PROMPT + "Hello"
        assert choices[0]["content"] == " there"

    async def test_so_is_one_of_parts(self, ask, engines):
        say(engines, Script.text(" there"))
        turns = [
            USER,
            {"role": "assistant", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
        ]
        choices, sent, _ = await ask(turns, continue_final_message=True)
        assert self.text(sent).startswith(PROMPT)
        assert choices[0]["content"] == " there"

    async def test_the_template_sees_the_client_s_own_variables(self, ask):
        _, sent, _ = await ask(chat_template_kwargs={"add_generation_prompt": False})
        assert self.text(sent) == PROMPT.removesuffix("<|im_start|>assistant\n")

    async def test_control_tokens_in_a_message_are_text(self, ask):
        _, sent, _ = await ask([{"role": "user", "content": "<|im_end|>"}])
        assert list(sent.tokenized.input_ids).count(mock.EOS) == 1


class TestReasoning:
    SCRIPT = Script.text("<think>first this</think>then that", per_chunk=2)

    @pytest.fixture(autouse=True)
    async def thinks(self, engines, monkeypatch):
        say(engines, self.SCRIPT)
        monkeypatch.setattr("smg.pipeline.formats.choose", _with_base)

    async def test_is_apart(self, ask):
        (choice,) = (await ask())[0].values()
        assert (choice["reasoning"], choice["content"]) == ("first this", "then that")

    async def test_stays_where_it_is_when_it_should_not_be_separated(self, ask):
        (choice,) = (await ask(separate_reasoning=False))[0].values()
        assert (choice["reasoning"], choice["content"]) == ("", "<think>first this</think>then that")

    async def test_comes_in_one_piece_when_it_should_not_be_streamed(self, ask, post):
        await ask(stream_reasoning=False)
        _, body = await post(
            "/v1/chat/completions", {"messages": [USER], "stream": True, "stream_reasoning": False, "logprobs": True}
        )
        *chunks, _ = frames(body)
        deltas = [chunk["choices"][0] for chunk in chunks if "reasoning_content" in chunk["choices"][0]["delta"]]
        assert [choice["delta"]["reasoning_content"] for choice in deltas] == ["first this"]
        rows = [row for chunk in chunks for row in (chunk["choices"][0]["logprobs"] or {}).get("content") or ()]
        assert "".join(row["token"] for row in rows) == "<think>first this</think>then that"


def _with_base(settings, *rest):
    return choose(replace(settings, reasoning_parser="base"), *rest)


class TestUsage:
    async def test_cached_tokens(self, ask, engines):
        say(engines, Script.text("ab", split="byte", cached_tokens=4))
        usage = (await ask())[2]["usage"]
        assert usage == {
            "prompt_tokens": len(mock.encode_text(PROMPT)),
            "completion_tokens": 3,
            "total_tokens": len(mock.encode_text(PROMPT)) + 3,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }

    @pytest.mark.parametrize("deltas", [True, False])
    async def test_OA_04_running_usage_is_the_same_for_both_ways_engines_count(self, post, engines, deltas):
        say(engines, Script.text("abc", "de", split="byte", delta_counts=deltas, eos=False, finish="length"))
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = {"messages": [USER], "n": 2, "stream": True, "stream_options": options}
        *chunks, _ = frames((await post("/v1/chat/completions", body))[1])
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert chunks[-1]["choices"] == []
        assert (chunks[-1]["usage"]["prompt_tokens"], counts[-1]) == (len(mock.encode_text(PROMPT)), 5)

    @pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
    async def test_OA_03_the_usage_event(self, post, options):
        body = {"messages": [USER], "stream": True, "stream_options": options}
        *chunks, _ = frames((await post("/v1/chat/completions", body))[1])
        empty = [chunk for chunk in chunks if not chunk["choices"]]
        assert len(empty) == bool(options and options["include_usage"])
        assert all(chunk["usage"] is not None for chunk in empty)


@pytest.mark.parametrize(
    ("body", "status", "kind", "code", "param"),
    [
        ({}, 400, "invalid_request_error", "invalid_value", "messages"),
        ({"messages": [USER], "temperature": 3}, 400, "invalid_request_error", "invalid_value", "temperature"),
        ({"messages": [USER], "lora_path": "x"}, 400, "invalid_request_error", "unsupported_parameter", "lora_path"),
        ({"messages": [USER], "model": "nope"}, 404, "not_found_error", "model_not_found", "model"),
        (
            {"messages": [USER], "max_tokens": 9999},
            *(400, "invalid_request_error", "context_length_exceeded", "max_tokens"),
        ),
        ({"messages": [USER], "best_of": 2}, 400, "invalid_request_error", "invalid_value", "best_of"),
        (
            {"messages": [USER], "modalities": ["text", "audio"]},
            400,
            "invalid_request_error",
            "unsupported_parameter",
            "modalities",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_have_one_shape(post, body, status, kind, code, param, stream):
    got, answer = await post("/v1/chat/completions", body | {"stream": stream})
    error = answer["error"]
    assert (got, error["type"], error["code"], error["param"]) == (status, kind, code, param)
    assert error["message"]
