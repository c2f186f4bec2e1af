"""Tokenize and detokenize over HTTP."""

import aiohttp
import pytest

from smg.core.turns import LONG_PROMPT
from smg.engine_server.mock import tokenizer as mock
from smg.fleet.records import ModelRecord
from tests.api.serving import serving
from tests.pipeline.fakes import world

CHAT = "<|im_start|>user\nhi<|im_end|>\n"


@pytest.fixture
def place():
    return world({"w1": [[]]}, context_length=100)


async def post(place, path, status=200, raw=None, **body):
    async with (
        serving(place.services) as url,
        aiohttp.ClientSession() as http,
        http.post(url + path, **({"data": raw} if raw else {"json": body})) as response,
    ):
        answer = await response.json()
        assert response.status == status, answer
        return answer if status == 200 else answer["error"]


class TestTokenize:
    async def test_a_text(self, place):
        assert await post(place, "/v1/tokenize", model="m", prompt="aé the") == {
            "tokens": mock.encode_text("aé the"),
            "count": 4,
            "char_count": 6,
            "max_model_len": 100,
        }

    async def test_several_are_parallel_lists(self, place):
        answer = await post(place, "/v1/tokenize", prompt=["ab", "", " the"], return_token_strs=True)
        assert answer["tokens"] == [[97, 98], [], mock.encode_text(" the")]
        assert (answer["count"], answer["char_count"]) == ([2, 0, 1], [2, 0, 4])
        assert answer["token_strs"] == [["a", "b"], [], [" the"]]

    async def test_long_texts_are_no_different(self, place):
        text = "come and see the world " * 500
        answer = await post(place, "/v1/tokenize", prompt=text)
        assert answer["tokens"] == mock.encode_text(text)
        assert answer["char_count"] == len(text)

    @pytest.mark.parametrize("several", [False, True])
    async def test_PF_01_nor_are_those_that_take_turns(self, place, several):
        text = " the" * LONG_PROMPT
        answer = await post(place, "/v1/tokenize", prompt=[text, "a"] if several else text)
        ids = mock.encode_text(text)
        assert answer["tokens"] == ([ids, [97]] if several else ids)
        turns = [{"role": "user", "content": text}]
        whole = await post(place, "/v1/tokenize", messages=turns)
        assert len(whole["tokens"]) == whole["count"] > LONG_PROMPT
        assert text in mock.decode_ids(whole["tokens"])

    async def test_a_conversation_is_rendered_as_for_chat(self, place):
        turns = [{"role": "user", "content": "hi"}]
        answer = await post(place, "/v1/tokenize", messages=turns)
        assert mock.decode_ids(answer["tokens"]) == CHAT + "<|im_start|>assistant\n"
        assert answer["char_count"] == len(CHAT + "<|im_start|>assistant\n")
        bare = await post(place, "/v1/tokenize", messages=turns, add_generation_prompt=False)
        assert mock.decode_ids(bare["tokens"]) == CHAT

    async def test_with_tools_and_a_message_to_continue(self, place):
        turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Sure"}]
        tool = {"type": "function", "function": {"name": "ping"}}
        answer = await post(place, "/v1/tokenize", messages=turns, tools=[tool], continue_final_message=True)
        text = mock.decode_ids(answer["tokens"])
        assert "ping" in text
        assert text.endswith("<|im_start|>assistant\nSure")

    @pytest.mark.parametrize("name", [None, "", "unknown"])
    async def test_without_a_name_the_first_model_is_meant(self, place, name):
        place.fleet.snapshot().models.append(ModelRecord("other"))
        assert (await post(place, "/v1/tokenize", model=name, prompt="a"))["tokens"] == [97]

    async def test_an_unknown_model(self, place):
        error = await post(place, "/v1/tokenize", 400, model="nope", prompt="a")
        assert (error["code"], error["param"]) == ("tokenizer_not_found", "model")

    async def test_no_model_at_all(self, place):
        place.fleet.snapshot().models.clear()
        assert (await post(place, "/v1/tokenize", 400, prompt="a"))["code"] == "tokenizer_not_found"

    async def test_a_tokenizer_that_is_still_loading(self, place):
        place.texts.loaded = False
        assert (await post(place, "/v1/tokenize", 503, model="m", prompt="a"))["code"] == "tokenizer_not_ready"

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({}, "prompt"),
            ({"prompt": "a", "messages": []}, "prompt"),
            ({"prompt": []}, "prompt"),
            ({"prompt": 5}, "prompt"),
            ({"prompt": ["a", 5]}, "prompt[1]"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ],
    )
    async def test_bad_bodies(self, place, body, param):
        assert (await post(place, "/v1/tokenize", 400, **body))["param"] == param

    async def test_OA_07_half_an_emoji(self, place):
        assert (await post(place, "/v1/tokenize", 400, raw=b'{"prompt":"\\ud83d"}'))["param"] == "prompt"

    async def test_what_is_no_json(self, place):
        assert (await post(place, "/v1/tokenize", 400, raw=b"prompt=a"))["code"] == "json_parse_error"


class TestDetokenize:
    async def test_one_list_is_one_text(self, place):
        assert await post(place, "/v1/detokenize", tokens=mock.encode_text("né the")) == {"text": "né the"}

    async def test_several(self, place):
        assert await post(place, "/v1/detokenize", tokens=[[97], [], [0xF0]]) == {"text": ["a", "", "\ufffd"]}

    async def test_special_tokens_are_left_out_unless_wanted(self, place):
        ids = [97, mock.EOS]
        assert await post(place, "/v1/detokenize", tokens=ids) == {"text": "a"}
        assert await post(place, "/v1/detokenize", tokens=ids, skip_special_tokens=False) == {"text": "a<|im_end|>"}

    async def test_nothing_is_an_empty_text(self, place):
        assert await post(place, "/v1/detokenize", tokens=[]) == {"text": ""}

    async def test_there_and_back(self, place):
        text = "any text, 😀 日本 <|im_start|>, at all " * 40
        ids = (await post(place, "/v1/tokenize", prompt=text))["tokens"]
        assert await post(place, "/v1/detokenize", tokens=ids, skip_special_tokens=False) == {"text": text}

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({}, "tokens"),
            ({"tokens": "a"}, "tokens"),
            ({"tokens": [1, -1]}, "tokens[1]"),
            ({"tokens": [1, "a"]}, "tokens[1]"),
            ({"tokens": [1, 100_000]}, "tokens[1]"),
            ({"tokens": [[1], [2, 100_000]]}, "tokens[1][1]"),
            ({"tokens": [[1], 2]}, "tokens[1]"),
        ],
    )
    async def test_bad_bodies(self, place, body, param):
        assert (await post(place, "/v1/detokenize", 400, **body))["param"] == param
