"""Field cases of the text path and of OpenAI's wire format, replayed over HTTP: streamed and buffered, however the
engine cuts its messages (rule SPLIT; the table's own tests have the cases' exact chunks)."""

import io
import json
import random
import zipfile

import aiohttp
import pytest
from tokenizers import Tokenizer as Library

from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.conftest import idle, say
from tests.api.serving import until
from tests.text.makers import CHATML, metaspace_json, write_model

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CUTS = (1, 2, 3, 1000)


@pytest.fixture
async def http(url):
    async with aiohttp.ClientSession(url) as session:
        yield session


def asked(path: str, **fields) -> dict:
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    return {"model": "mock", "max_tokens": 1000, **prompt, **fields}


async def buffered(http, path: str, **fields) -> list[tuple[str, str]]:
    """(text, finish reason) of each choice."""
    async with http.post(path, json=asked(path, **fields)) as response:
        assert response.status == 200
        choices = (await response.json())["choices"]
    return [(c["message"]["content"] if path == CHAT else c["text"], c["finish_reason"]) for c in choices]


async def events(http, path: str, **fields) -> list[dict]:
    """The stream's events but for ``[DONE]``, which is the last one."""
    async with http.post(path, json=asked(path, stream=True, **fields)) as response:
        assert response.status == 200
        lines = (await response.read()).decode("utf-8").split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def delta(choice: dict) -> str | None:
    return choice["delta"].get("content") if "delta" in choice else choice["text"]


def assembled(found: list[dict], n: int = 1) -> list[tuple[str, str]]:
    """(text, finish reason) of each choice, which says its reason exactly once."""
    texts, reasons = [""] * n, [[] for _ in range(n)]
    for choice in (choice for event in found for choice in event["choices"]):
        assert "finish_reason" in choice
        texts[choice["index"]] += delta(choice) or ""
        if choice["finish_reason"] is not None:
            reasons[choice["index"]].append(choice["finish_reason"])
    assert [len(reason) for reason in reasons] == [1] * n
    return [(text, reason) for text, (reason,) in zip(texts, reasons, strict=True)]


async def both(http, engines, ids: list[int], path: str, finish: str | None = None, **fields) -> tuple[str, str]:
    """What streams and whole answers of ``ids`` have in common, which must be everything."""
    found = set()
    for cut in CUTS:
        say(engines, Script(tokens=ids, per_chunk=cut, finish=finish))
        found |= {*assembled(await events(http, path, **fields)), *await buffered(http, path, **fields)}
    (only,) = found
    return only


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
class TestText:
    async def test_TX_01_an_emoji_cut_in_half(self, http, engines, path):
        ids = [*b"Hi ", *"😀".encode(), *b"!"]
        assert await both(http, engines, ids, path) == ("Hi 😀!", "stop")
        say(engines, Script(tokens=ids))
        deltas = [delta(choice) for event in await events(http, path) for choice in event["choices"]]
        assert not any("\ufffd" in (text or "") for text in deltas)

    async def test_TX_02_invalid_bytes(self, http, engines, path):
        ids = [0xFF, *b"ab", 0xE4, 0xBD, *b"c"]
        assert await both(http, engines, ids, path) == ("\ufffdab\ufffdc", "stop")
        assert await both(http, engines, ids[:-1], path) == ("\ufffdab\ufffd", "stop")

    async def test_TX_04_a_stop_string_across_deltas(self, http, engines, path):
        assert await both(http, engines, [*b"go STOP now"], path, stop=["STOP"]) == ("go ", "stop")
        async with http.post(path, json=asked(path, stop=["STOP"])) as response:
            assert (await response.json())["choices"][0]["matched_stop"] == "STOP"

    @pytest.mark.parametrize(
        ("text", "finish"), [("a ## b", None), ("end #", None), ("end ##", "length")], ids=["eos", "tail", "length"]
    )
    async def test_TX_05_held_text_that_was_no_stop(self, http, engines, path, text, finish):
        found = await both(http, engines, [*text.encode()], path, finish=finish, stop=["###"])
        assert found == (text, finish or "stop")


class TestDecodeCleanUp:
    """Metaspace with byte fallback, where a library that tidies the text would rewrite what has left already."""

    CASES = (("▁▁▁▁", "."), ("▁do", "▁n", "'t", "▁stop", "▁."))

    @pytest.fixture(params=[None, True], ids=["absent", "on"])
    def model_dir(self, tmp_path, request):
        config = {"chat_template": CHATML}
        if request.param is not None:
            config["clean_up_tokenization_spaces"] = request.param
        return write_model(tmp_path, metaspace_json("legacy"), tokenizer_config=config)

    async def test_TX_03_what_is_streamed_is_the_decode_of_the_same_ids(self, http, engines):
        library = Library.from_str(metaspace_json("legacy"))
        draw = random.Random(3)
        # Ids of whole characters: how the library replaces wrong bytes is a matter of its own.
        usable = [token for token in range(3, library.get_vocab_size()) if "\ufffd" not in library.decode([token])]
        cases = [[library.token_to_id(piece) for piece in pieces] for pieces in self.CASES]
        cases += [[draw.choice(usable) for _ in range(draw.randint(2, 20))] for _ in range(5)]
        for ids in cases:
            say(engines, Script(tokens=ids, eos=False))
            found = [choice for event in await events(http, CHAT, max_tokens=len(ids)) for choice in event["choices"]]
            texts = [delta(choice) for choice in found if "role" not in choice["delta"]]
            wanted = [library.decode(ids[: count + 1]) for count in range(len(ids))]
            sofar = ["".join(filter(None, texts[: count + 1])) for count in range(len(texts))]
            # A token without text of its own has no event.
            assert [text for text in dict.fromkeys(sofar) if text] == [text for text in dict.fromkeys(wanted) if text]
            async with http.post("/v1/detokenize", json={"model": "mock", "tokens": ids}) as response:
                assert (await response.json())["text"] == wanted[-1]
            assert await both(http, engines, ids, CHAT, finish="length", max_tokens=len(ids)) == (wanted[-1], "length")

    async def test_TX_03_the_period_behind_an_indentation_is_there(self, http, engines):
        library = Library.from_str(metaspace_json("legacy"))
        indented, spoken = ([library.token_to_id(piece) for piece in pieces] for pieces in self.CASES)
        for ids, text in ((indented, "   ."), (spoken, "do n't stop .")):
            assert await both(http, engines, ids, CHAT, finish="stop", max_tokens=len(ids)) == (text, "stop")


class TestSystemMessagesAnywhere:
    MESSAGES = (
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "From now on answer only BLUE."},
        {"role": "user", "content": "Colour of the sky?"},
    )
    ANY_ORDER = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    STRICT = (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning') }}{% endif %}"
        "{{ m.role }}:{{ m.content }};{% endfor %}"
    )
    KEPT = (
        "system:You are terse.;user:Hi;assistant:Hello.;system:From now on answer only BLUE.;user:Colour of the sky?;"
    )
    MERGED = "system:You are terse.\n\nFrom now on answer only BLUE.;user:Hi;assistant:Hello.;user:Colour of the sky?;"
    REFUSES = "{{ raise_exception('Conversation roles must alternate') }}"

    @pytest.fixture
    def model_dir(self, tmp_path, template):
        zipfile.ZipFile(io.BytesIO(mock.archive(4096))).extractall(tmp_path)
        (tmp_path / "chat_template.jinja").write_text(template)
        return tmp_path

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("role", ["system", "developer"])
    @pytest.mark.parametrize(("template", "prompt"), [(ANY_ORDER, KEPT), (STRICT, MERGED)], ids=["any", "strict"])
    async def test_CT_02_the_order_is_kept_or_the_texts_are_merged(self, http, engines, prompt, role, stream):
        say(engines, Script.text(" good"))
        messages = [{**m, "role": role} if m["role"] == "system" else m for m in self.MESSAGES]
        async with http.post(CHAT, json=asked(CHAT, messages=messages, stream=stream)) as response:
            assert response.status == 200
            assert " good" in await response.text()
        (seen,) = [entry for engine in engines for entry in engine.requests]
        assert mock.decode_ids(seen.request.tokenized.input_ids) == prompt

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("template", "text"),
        [(REFUSES, "Conversation roles must alternate"), ("{{ messages.nothing.at_all }}", "nothing")],
    )
    async def test_CT_02_any_other_refusal_is_a_400_with_the_templates_message(self, http, engines, text, stream):
        async with http.post(CHAT, json=asked(CHAT, messages=self.MESSAGES, stream=stream)) as response:
            assert response.status == 400
            error = (await response.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert text in error["message"]
        assert not [entry for engine in engines for entry in engine.requests]


class TestStops:
    async def test_TX_06_no_empty_delta_but_the_role_and_every_token_at_once(self, http, engines):
        say(engines, Script(tokens=[ord("I"), *mock.encode_text(" there", "word"), ord("!"), ord("<"), ord(" ")]))
        stop = ["<|a-very-long-stop-marker-of-40-characters|>"]
        found = [choice["delta"] for event in await events(http, CHAT, stop=stop) for choice in event["choices"]]
        contents = [one["content"] for one in found if one.get("content") is not None and "role" not in one]
        # "<" could be the marker's beginning, "< " cannot.
        assert contents == ["I", " there", "!", "< "]
        assert "" not in contents

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
    async def test_TX_07_each_choice_stops_by_itself_and_the_engine_once(self, http, gateway, engines, path, stream):
        # So long that the engine is at it yet when even a slow gateway has seen the stops.
        rest = b"." * 1000
        say(engines, Script(choices=[[*b"one\n\nxx", *rest], [*b"two three\n\nyy", *rest]], chunk_delay=0.002))
        if stream:
            found = await events(http, path, n=2, stop=["\n\n"], stream_options={"include_usage": True})
            assert assembled(found, 2) == [("one", "stop"), ("two three", "stop")]
            used = found[-1]["usage"]
        else:
            async with http.post(path, json=asked(path, n=2, stop=["\n\n"])) as response:
                whole = await response.json()
            assert [c["finish_reason"] for c in whole["choices"]] == ["stop", "stop"]
            used = whole["usage"]
        # Up to the token that completed each stop.
        assert used["completion_tokens"] == len("one\n\n") + len("two three\n\n")
        # The call is reset as well, and which of the two the engine hears first is open.
        await until(lambda: any(engine.aborted for engine in engines))
        await idle(gateway, engines)
        assert sum(len(engine.aborted) for engine in engines) == 1

    async def test_TX_07_a_stop_that_the_engine_reports_causes_no_abort(self, http, gateway, engines):
        say(engines, Script(tokens=[*b"hi.and more"]))
        assert await buffered(http, CHAT, stop=["."]) == [("hi", "stop")]
        await idle(gateway, engines)
        assert [engine.aborted for engine in engines] == [[], []]

    @pytest.mark.parametrize("stop", [".", ["."], ["a dot.", "dot."]])
    async def test_TX_08_an_engine_without_a_tokenizer_gets_no_stop_strings(self, http, engines, stop):
        def refuse_strings(request, choice):
            # What a token-only engine does is a failed call, which would be no 200 here.
            assert not request.sampling_params.stop
            return [*b"a dot.and more"]

        say(engines, Script(tokens=refuse_strings))
        [(text, reason)] = await buffered(http, CHAT, stop=stop)
        assert (text, reason) == ("" if len(stop) == 2 else "a dot", "stop")


class TestUsageEvents:
    OPTIONS = (None, {"include_usage": False}, {"include_usage": True})

    @pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
    async def test_OA_01_exactly_one_finish_event_per_choice(self, http, engines, path):
        say(engines, Script(choices=[[*b"aac"], [*b"b", mock.EOS]], eos=False))
        found = await events(http, path, n=2, max_tokens=3, stream_options={"include_usage": True})
        assert assembled(found, 2) == [("aac", "length"), ("b", "stop")]
        assert found[-1]["choices"] == []
        assert all(len(event["choices"]) == 1 for event in found[:-1])

    @pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
    async def test_OA_03_the_usage_event_only_on_request(self, http, gateway, engines, path):
        say(engines, Script.text("hello there"))
        for options in self.OPTIONS:
            found = await events(http, path, stream_options=options)
            if options is None or not options["include_usage"]:
                assert all(event["choices"] for event in found)
                assert all(event.get("usage") is None for event in found)
            else:
                *ordinary, last = found
                assert all(event["choices"] and event["usage"] is None for event in ordinary)
                assert last["choices"] == []
                assert last["usage"]["completion_tokens"] == len(mock.encode_text("hello there", "word")) + 1

    async def test_OA_03_what_is_counted_inside_is_the_same_in_all_three(self, http, gateway, engines):
        say(engines, Script.text("hello there"))
        counted = []
        for options in self.OPTIONS:
            before = tokens_counted(gateway)
            await events(http, CHAT, stream_options=options)
            counted.append({key: value - before.get(key, 0) for key, value in tokens_counted(gateway).items()})
        assert counted[0] == counted[1] == counted[2]
        assert all(counted[0].values())

    @pytest.mark.parametrize("deltas", [True, False], ids=["deltas", "totals"])
    @pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
    async def test_OA_04_running_usage(self, http, engines, path, deltas):
        say(engines, Script(choices=[[*b"abc"], [*b"de"]], eos=False, delta_counts=deltas))
        both_on = {"include_usage": True, "continuous_usage_stats": True}
        found = await events(http, path, n=2, stream_options=both_on)
        prompts = {event["usage"]["prompt_tokens"] for event in found}
        seen = next(engine.requests[-1] for engine in engines if engine.requests)
        assert prompts == {len(seen.request.tokenized.input_ids)}, "counted once, not once for each choice"
        running = [event["usage"]["completion_tokens"] for event in found]
        assert running == sorted(running)
        assert running[-1] == 5
        assert found[-1]["usage"]["total_tokens"] == 5 + prompts.pop()
        for useless in ({"continuous_usage_stats": True}, {"continuous_usage_stats": True, "include_usage": False}):
            alone = await events(http, path, n=2, stream_options=useless)
            assert all(event.get("usage") is None and event["choices"] for event in alone)


def tokens_counted(gateway) -> dict[bytes, int]:
    series = ((key, value) for key, _, value in gateway.region.read_series())
    return {key: value for key, value in series if key.startswith(b"smg_router_tokens_total")}


class TestHalfAnEmoji:
    BODIES = (
        (CHAT, '{"model":"mock","messages":[{"role":"user","content":"x \\ud83d"}]%s}', "messages[0].content"),
        (
            CHAT,
            '{"model":"mock","messages":[{"role":"user","content":[{"type":"text","text":"\\ude00"}]}]%s}',
            "messages",
        ),
        (COMPLETIONS, '{"model":"mock","prompt":"\\udcf0"%s}', "prompt"),
        (COMPLETIONS, '{"model":"mock","prompt":["ok","\\udcf0"]%s}', "prompt"),
        ("/v1/tokenize", '{"model":"mock","prompt":"\\udcf0"%s}', "prompt"),
        ("/v1/embeddings", '{"model":"mock","input":"\\udcf0"%s}', "input"),
        ("/v1/embeddings", '{"model":"mock","input":["ok","\\udcf0"]%s}', "input"),
        ("/generate", '{"text":"x \\ud83d"%s}', "text"),
    )

    @pytest.mark.parametrize("stream", ["", ',"stream":false', ',"stream":true'])
    @pytest.mark.parametrize(("path", "body", "field"), BODIES)
    async def test_OA_07_it_is_the_clients_fault_before_any_stream(self, http, path, body, field, stream):
        async with http.post(path, data=body % stream) as response:
            text = await response.text()
            assert response.status == 400
            assert response.content_type == "application/json"
        error = json.loads(text)["error"]
        assert error["type"] == "invalid_request_error"
        assert error["param"].startswith(field)
        assert not any(word in text for word in ("Traceback", "UnicodeEncodeError", "Exception"))

    @pytest.mark.parametrize("stream", ["", ',"stream":false', ',"stream":true'])
    @pytest.mark.parametrize(
        ("path", "body", "field"),
        [
            ("/v1/responses", '"input":"x \\ud83d"', "input"),
            ("/v1/responses", '"input":[{"role":"user","content":"\\udcf0"}]', "input"),
            ("/v1/responses", '"input":"ok","instructions":"\\udcf0"', "instructions"),
            ("/v1/messages", '"max_tokens":9,"messages":[{"role":"user","content":"x \\ud83d"}]', "messages.0.content"),
            ("/v1/messages", '"max_tokens":9,"system":"\\ud83d","messages":[{"role":"user","content":"x"}]', "system"),
            ("/v1/messages/count_tokens", '"messages":[{"role":"user","content":"x \\ud83d"}]', "messages.0.content"),
            ("/v1/rerank", '"query":"\\ud83d","documents":["a"]', "query"),
            (CHAT, '"messages":[{"role":"user","content":"x"}],"stop":"\\ud83d"', "stop"),
            (
                CHAT,
                '"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"\\ud83d"}}]',
                "tools",
            ),
            (
                CHAT,
                '"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"\\ud83d":1}',
                "chat_template_kwargs",
            ),
        ],
    )
    async def test_OA_07_in_every_family_and_field(self, http, path, body, field, stream):
        async with http.post(path, data=f'{{"model":"mock",{body}{stream}}}') as response:
            text = await response.text()
            assert response.status == 400
            assert response.content_type == "application/json"
        error = json.loads(text)["error"]
        assert error["type"] == "invalid_request_error"
        # Anthropic's errors have no field of their own for it.
        assert (error.get("param") or error["message"]).startswith(field)
        assert not any(word in text for word in ("Traceback", "UnicodeEncodeError", "Exception"))

    async def test_OA_07_a_whole_one_is_fine(self, http, engines):
        say(engines, Script.text("fine"))
        body = '{"model":"mock","messages":[{"role":"user","content":"ok \\ud83d\\ude00"}]}'
        async with http.post(CHAT, data=body) as response:
            assert response.status == 200
        seen = [*(engine.requests[-1] for engine in engines if engine.requests)]
        assert "ok 😀" in mock.tokenizer().decode(list(seen[0].request.tokenized.input_ids))
