"""SGLang's native route: decoding, the buffered objects, and frames that say the same."""

import json

import msgspec
import pytest

from smg.api.dialect import Meta
from smg.api.generate import Generate
from smg.api.generate.decode import GenerateOptions, decode
from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Finish, PromptLogprobs, TextDelta, Usage
from smg.core.request import Constraint, Limits, Logprobs
from smg.pipeline.accumulator import Accumulator
from tests.pipeline.fakes import text_model

DIALECT = Generate()
CTX = RequestContext("gnt-1", endpoint="/generate")
DECODER = text_model().tokenizer.decoder
# Where the body has the limits.
PATHS = ("sampling_params.max_new_tokens", "sampling_params.min_new_tokens")


def generate(headers=None, **fields):
    fields = {"text": "Say"} | fields
    return decode(json.dumps({name: value for name, value in fields.items() if value != ...}).encode(), headers or {})


def refused(**fields) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        generate(**fields)
    assert caught.value.status == 400
    return caught.value


def stream(pulls, **fields) -> list:
    encoder = DIALECT.encoder(CTX, Meta(generate(stream=True, **fields), "m", 9, DECODER))
    assert encoder.template(0) is None
    body = encoder.preamble(direct=False) + b"".join(encoder.events(events) for events in pulls) + encoder.closing()
    *frames, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def buffered(events, **fields):
    told = Meta(generate(**fields), "m", 9, DECODER)
    accumulator = Accumulator(told.request.choices)
    accumulator.feed(events)
    return json.loads(msgspec.json.encode(DIALECT.answer(CTX, told, accumulator.finish())))


def delta(choice, text, *rows) -> TextDelta:
    """Text whose bytes are its tokens, with a row per token when ``rows`` are given."""
    return TextDelta(choice, text, rows or None, tuple(text.encode()))


class TestDecode:
    def test_defaults(self):
        request = generate()
        assert (request.dialect, request.model, request.prompt_text, request.n) == ("generate", "", "Say", 1)
        assert request.limits == Limits(None, 0, 128, PATHS)
        assert request.return_ids
        assert not request.separate_reasoning
        assert request.options == GenerateOptions()

    @pytest.mark.parametrize(
        ("fields", "where", "value"),
        [
            ({"text": "a"}, "prompt_text", "a"),
            ({"text": ["a", "b"]}, "prompts", ["a", "b"]),
            ({"text": ..., "input_ids": [1, 2]}, "prompt_ids", [1, 2]),
            ({"text": ..., "input_ids": [[1, 2], [3]]}, "prompts", [[1, 2], [3]]),
        ],
    )
    def test_the_prompt(self, fields, where, value):
        assert getattr(generate(**fields), where) == value

    def test_sampling_params_in_sglang_s_names(self):
        request = generate(
            sampling_params={
                "temperature": 0,
                "top_k": -1,
                "max_new_tokens": 7,
                "min_new_tokens": 2,
                "stop": ["a"] * 9,
                "stop_token_ids": [5],
                "n": 2,
                "sampling_seed": 3,
                "ignore_eos": True,
                "skip_special_tokens": False,
                "spaces_between_special_tokens": True,
                "logit_bias": {"5": 1},
            }
        )
        assert (request.limits, request.n) == (Limits(7, 2, 128, PATHS), 2)
        assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0, -1, 3)
        assert (len(request.stop.strings), request.stop.ids, request.stop.ignore_eos) == (9, (5,), True)
        assert (request.sampling.logit_bias, request.skip_special_tokens) == ({5: 1}, False)

    @pytest.mark.parametrize(
        ("params", "expected"),
        [
            ({"regex": "a+"}, Constraint("regex", "a+")),
            ({"ebnf": "root ::= x"}, Constraint("grammar", "root ::= x")),
            ({"json_schema": '{"type":"object"}'}, Constraint("json_schema", '{"type":"object"}')),
            (
                {"structural_tag": '{"triggers":["<a"],"structures":[]}'},
                Constraint("structural_tag", '{"type":"structural_tag","triggers":["<a"],"structures":[]}'),
            ),
        ],
    )
    def test_constraints(self, params, expected):
        assert generate(sampling_params=params).constraint == expected

    def test_log_probabilities(self):
        assert generate().logprobs is None
        assert generate(return_logprob=True).logprobs == Logprobs(0)
        asked = generate(return_logprob=True, logprob_start_len=0, top_logprobs_num=3)
        assert asked.logprobs == Logprobs(3, prompt=True)
        assert asked.options.start == 0
        assert generate(return_logprob=True, logprob_start_len=-1).logprobs == Logprobs(0)
        # Without the first flag the others mean nothing.
        assert generate(logprob_start_len=0, top_logprobs_num=3).logprobs is None

    def test_a_data_parallel_rank(self):
        assert generate(data_parallel_rank=0).hints.dp_rank == 0

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"text": ...}, "text"),
            ({"text": ""}, "text"),
            ({"text": []}, "text"),
            ({"text": ["a", ""]}, "text[1]"),
            ({"text": [1]}, "text[0]"),
            ({"input_ids": [1]}, "input_ids"),
            ({"text": ..., "input_ids": []}, "input_ids"),
            ({"text": ..., "input_ids": [1, -1]}, "input_ids[1]"),
            ({"text": ..., "input_ids": [[1], []]}, "input_ids[1]"),
            ({"sampling_params": []}, "sampling_params"),
            ({"sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
            ({"sampling_params": {"top_k": 0}}, "sampling_params.top_k"),
            ({"sampling_params": {"n": 0}}, "sampling_params.n"),
            ({"sampling_params": {"max_new_tokens": 1, "min_new_tokens": 2}}, "sampling_params.min_new_tokens"),
            ({"sampling_params": {"stop": ["a", ""]}}, "sampling_params.stop[1]"),
            ({"sampling_params": {"logit_bias": {"x": 1}}}, "sampling_params.logit_bias"),
            ({"sampling_params": {"regex": "a", "ebnf": "b"}}, "sampling_params.ebnf"),
            ({"sampling_params": {"json_schema": "{"}}, "sampling_params.json_schema"),
            ({"sampling_params": {"stop_regex": "a"}}, "sampling_params.stop_regex"),
            ({"sampling_params": {"custom_params": {"a": 1}}}, "sampling_params.custom_params"),
            ({"sampling_params": {"bad_words": ["a"]}}, "sampling_params.bad_words"),
            ({"sampling_params": {"use_beam_search": True}}, "sampling_params.use_beam_search"),
            ({"logprob_start_len": -2}, "logprob_start_len"),
            ({"top_logprobs_num": 21}, "top_logprobs_num"),
            ({"stream_output": "sideways"}, "stream_output"),
            ({"image_data": ["x"]}, "image_data[0]"),
            ({"image_data": [{"uri": "x"}]}, "image_data[0]"),
            ({"text": ["a", "b"], "image_data": ["http://x/a.png"]}, "image_data"),
            ({"text": ["a", "b"], "image_data": [None, [3]]}, "image_data[1][0]"),
            ({"image_data": "http://h/i", "video_data": "http://h/v"}, "video_data"),
            ({"input_embeds": [[0.5]]}, "input_embeds"),
            ({"return_hidden_states": True}, "return_hidden_states"),
            ({"token_ids_logprob": [1]}, "token_ids_logprob"),
            ({"bootstrap_host": "h"}, "bootstrap_host"),
            ({"rid": ["a"]}, "rid"),
            ({"text": ["a", "b"], "rid": ["x"]}, "rid"),
            ({"text": ["a", "b"], "rid": ["x", "y z"]}, "rid[1]"),
            ({"rid": ""}, "rid"),
        ],
    )
    def test_rules(self, fields, param):
        assert refused(**fields).param == param


class TestWhole:
    def test_one_generation_is_one_object(self):
        answer = buffered([delta(0, "hi"), Finish(0, "stop"), Usage(3, 2, 1, 0)])
        latency = answer["meta_info"].pop("e2e_latency")
        assert latency >= 0
        assert answer == {
            "text": "hi",
            "output_ids": [104, 105],
            "meta_info": {
                "id": "gnt-1",
                "finish_reason": {"type": "stop", "matched": None},
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "cached_tokens": 1,
                "reasoning_tokens": 0,
                "weight_version": "default",
            },
        }

    @pytest.mark.parametrize(
        ("finish", "reason", "matched"),
        [
            (Finish(0, "length"), {"type": "length", "length": 2}, None),
            (Finish(0, "stop", "\n"), {"type": "stop", "matched": "\n"}, "\n"),
            (Finish(0, "stop", 7), {"type": "stop", "matched": 7}, 7),
        ],
    )
    def test_how_it_ended(self, finish, reason, matched):
        info = buffered([delta(0, "hi"), finish, Usage(3, 2)])["meta_info"]
        assert (info["finish_reason"], info.get("matched_stop")) == (reason, matched)

    @pytest.mark.parametrize(
        ("fields", "ids"),
        [
            ({"sampling_params": {"n": 2}}, ["gnt-1-0", "gnt-1-1"]),
            ({"text": ["a", "b"]}, ["gnt-1-0", "gnt-1-1"]),
            ({"text": ["a", "b"], "rid": "mine"}, ["mine-0", "mine-1"]),
            ({"text": ["a", "b"], "rid": ["x", "y"]}, ["x", "y"]),
            ({"text": ["a"], "sampling_params": {"n": 2}, "rid": ["x"]}, ["x-0", "x-1"]),
        ],
    )
    def test_several_are_a_list(self, fields, ids):
        events = [delta(0, "a"), delta(1, "bb"), Finish(0, "stop"), Finish(1, "stop"), Usage(3, 3)]
        answer = buffered(events, **fields)
        assert [(item["text"], item["meta_info"]["completion_tokens"]) for item in answer] == [("a", 1), ("bb", 2)]
        assert [item["meta_info"]["id"] for item in answer] == ids

    def test_a_list_of_one_prompt_is_a_list_of_one(self):
        assert len(buffered([Finish(0, "stop"), Usage(3, 0)], text=["a"])) == 1

    def test_of_several_prompts_each_has_its_own_counts(self):
        usage = Usage(7, 2, 3, parts=(Usage(3, 1, 1, weight_version="w1"), Usage(4, 1, 2, weight_version="w2")))
        answer = buffered([Finish(0, "stop"), Finish(1, "stop"), usage], text=["a", "b"])
        told = [item["meta_info"] for item in answer]
        assert [(info["prompt_tokens"], info["cached_tokens"], info["weight_version"]) for info in told] == [
            (3, 1, "w1"),
            (4, 2, "w2"),
        ]

    def test_the_client_s_own_id(self):
        assert buffered([Finish(0, "stop"), Usage()], rid="mine")["meta_info"]["id"] == "mine"


class TestLogprobs:
    PROMPT = PromptLogprobs(0, (TokenLogprobs(83, None), TokenLogprobs(97, -1.0, ((98, -0.5), (97, -1.0)))))
    OUTPUT = delta(0, "a", TokenLogprobs(97, -0.25, ((97, -0.25), (98, -2.0))))
    EVENTS = (PROMPT, OUTPUT, Finish(0, "stop"), Usage(2, 1))

    def told(self, **fields):
        info = buffered(self.EVENTS, return_logprob=True, **fields)["meta_info"]
        return {name: value for name, value in info.items() if name.endswith("_logprobs")}

    def test_are_triples_of_value_id_and_text(self):
        assert self.told() == {"input_token_logprobs": [], "output_token_logprobs": [[-0.25, 97, None]]}
        assert self.told(return_text_in_logprobs=True)["output_token_logprobs"] == [[-0.25, 97, "a"]]

    def test_of_the_prompt_from_where_the_client_wants(self):
        assert self.told(logprob_start_len=0)["input_token_logprobs"] == [[None, 83, None], [-1.0, 97, None]]
        assert self.told(logprob_start_len=1)["input_token_logprobs"] == [[-1.0, 97, None]]
        assert self.told(logprob_start_len=9)["input_token_logprobs"] == []

    def test_of_the_best_candidates(self):
        told = self.told(logprob_start_len=0, top_logprobs_num=2)
        assert told["input_top_logprobs"] == [None, [[-0.5, 98, None], [-1.0, 97, None]]]
        assert told["output_top_logprobs"] == [[[-0.25, 97, None], [-2.0, 98, None]]]

    def test_are_absent_unless_asked_for(self):
        info = buffered([delta(0, "a"), Finish(0, "stop"), Usage()])["meta_info"]
        assert not [name for name in info if name.endswith("_logprobs")]

    def test_frames_grow_to_the_buffered_lists(self):
        pulls = [[self.PROMPT], [self.OUTPUT], [self.OUTPUT], [Finish(0, "stop"), Usage(2, 2)]]
        fields = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}
        frames = stream(pulls, **fields)
        whole = buffered([event for events in pulls for event in events], **fields)
        for name in ("input_token_logprobs", "input_top_logprobs", "output_token_logprobs", "output_top_logprobs"):
            assert frames[-1]["meta_info"][name] == whole["meta_info"][name]
        assert [len(frame["meta_info"]["output_token_logprobs"]) for frame in frames] == [1, 2, 2]


class TestFrames:
    PULLS = (
        [delta(0, "he"), Usage(3, 2)],
        [delta(0, 'y "'), Usage(3, 5)],
        [Finish(0, "stop"), Usage(3, 5)],
    )

    def test_each_is_the_object_so_far_with_the_ids_that_are_new(self):
        frames = stream(self.PULLS)
        assert [frame["text"] for frame in frames] == ["he", 'hey "', 'hey "']
        assert [bytes(frame["output_ids"]) for frame in frames] == [b"he", b'y "', b""]
        assert [frame["meta_info"]["completion_tokens"] for frame in frames] == [2, 5, 5]
        assert [frame["meta_info"]["finish_reason"] for frame in frames] == [
            None,
            None,
            {"type": "stop", "matched": None},
        ]

    def test_incremental_output(self):
        frames = stream(self.PULLS, stream_output="incremental")
        assert [frame["text"] for frame in frames] == ["he", 'y "', ""]

    def test_the_last_is_the_buffered_answer(self):
        last = stream(self.PULLS)[-1]
        whole = buffered([event for events in self.PULLS for event in events])
        last["output_ids"] = whole["output_ids"]
        for answer in (last, whole):
            del answer["meta_info"]["e2e_latency"]
        assert last == whole

    def test_one_frame_per_choice_and_pull_with_its_index(self):
        pulls = [[delta(0, "a"), delta(1, "b"), delta(0, "c"), Usage(3, 3)], [Finish(1, "stop"), Finish(0, "length")]]
        frames = stream(pulls, sampling_params={"n": 2})
        assert [(frame["index"], frame["text"]) for frame in frames] == [(0, "ac"), (1, "b"), (1, "b"), (0, "ac")]

    def test_one_generation_has_no_index(self):
        assert "index" not in stream(self.PULLS)[0]

    def test_an_error_in_mid_stream(self):
        encoder = DIALECT.encoder(CTX, Meta(generate(), "m", 9, DECODER))
        body = encoder.failure(GatewayError("worker_stream_failed", "broke"))
        assert json.loads(body[6:])["error"]["code"] == "worker_stream_failed"
