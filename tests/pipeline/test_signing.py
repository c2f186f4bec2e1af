"""Reasoning is signed as the client gets it, whichever way it goes, and only what is signed counts in the next turn."""

import threading

from smg.config.settings import SecuritySettings, ServerSettings, Settings
from smg.core.context import Principal, RequestContext
from smg.core.events import Finish, ReasoningDelta, TextDelta, ToolCallStart, Usage
from smg.core.request import GenerationRequest, Message, ReasoningPart, TextPart
from smg.core.stream import ByteTemplate, Counter
from smg.core.turns import LONG_BODY
from smg.pipeline.generation import Generation
from smg.pipeline.signing import Signing, verified
from smg.security.signing import Signer
from tests.pipeline.fakes import SETTINGS, end, text, world

SIGNER = Signer(Settings(server=ServerSettings(), security=SecuritySettings(signing_key="s")))
CTX = RequestContext("r", principal=Principal(tenant="acme"))


def signed(*batches) -> list:
    signing = Signing(lambda block: f"<{block}>")
    return [event for batch in batches for event in signing.signed(batch)]


class TestEvents:
    def test_a_signature_stands_behind_each_block(self):
        events = [
            [ReasoningDelta(0, "a")],
            [ReasoningDelta(0, "b"), TextDelta(0, "c"), ReasoningDelta(0, "d")],
            [ToolCallStart(0, 0, "i", "f"), Finish(0, "stop")],
        ]
        assert signed(*events) == [
            ReasoningDelta(0, "a"),
            ReasoningDelta(0, "b"),
            ReasoningDelta(0, "", "<ab>"),
            TextDelta(0, "c"),
            ReasoningDelta(0, "d"),
            ReasoningDelta(0, "", "<d>"),
            ToolCallStart(0, 0, "i", "f"),
            Finish(0, "stop"),
        ]

    def test_what_says_nothing_ends_no_block(self):
        events = [
            ReasoningDelta(0, "a"),
            Usage(),
            TextDelta(0, "", ids=(1,)),
            ReasoningDelta(0, "b"),
            Finish(0, "stop"),
        ]
        assert signed(events)[-2:] == [ReasoningDelta(0, "", "<ab>"), Finish(0, "stop")]

    def test_an_answer_without_reasoning_has_no_signature(self):
        events = [TextDelta(0, "a"), Finish(0, "stop")]
        assert signed(events) == events

    def test_a_providers_own_signature_stays(self):
        events = [ReasoningDelta(0, "a", "theirs"), TextDelta(0, "b"), Finish(0, "stop")]
        assert signed(events) == events


class TestHistory:
    def request(self, *parts, verify=True) -> GenerationRequest:
        messages = [Message("user", "hi"), Message("assistant", list(parts)), Message("user", [TextPart("go on")])]
        return GenerationRequest("x", "m", messages=messages, verify_reasoning=verify)

    async def kept(self, *parts, verify=True) -> list:
        return (await verified(SIGNER, CTX, self.request(*parts, verify=verify))).messages[1].content

    async def test_only_reasoning_with_a_signature_of_ours_stays(self):
        ours = ReasoningPart("mine", SIGNER.sign("acme", "mine"))
        parts = [
            ours,
            ReasoningPart("forged", SIGNER.sign("acme", "mine")),
            ReasoningPart("theirs", SIGNER.sign("other", "theirs")),
            ReasoningPart("none"),
            TextPart("said"),
        ]
        assert await self.kept(*parts) == [ours, TextPart("said")]

    async def test_who_does_not_ask_gets_it_all(self):
        assert await self.kept(ReasoningPart("none"), verify=False) == [ReasoningPart("none")]

    async def test_megabytes_are_looked_at_in_a_thread(self):
        """Whoever streams must not wait for the digest of what somebody else sends (case PF-01)."""
        threads = []

        class Watched(Signer):
            def verify(self, tenant, text, signature):
                threads.append(threading.current_thread())
                return super().verify(tenant, text, signature)

        signer = Watched(Settings(security=SecuritySettings(signing_key="s")))
        long, short = "x" * (LONG_BODY + 1), "x"
        for words in (long, short):
            part = ReasoningPart(words, SIGNER.sign("acme", words))
            request = await verified(signer, CTX, self.request(part, ReasoningPart("none")))
            assert request.messages[1].content == [part]
        here = threading.current_thread()
        assert [thread is here for thread in threads] == [False, False, True, True]

    async def test_a_request_stays_as_it_was_given(self):
        request = self.request(ReasoningPart("none"))
        await verified(SIGNER, CTX, request)
        assert request.messages[1].content == [ReasoningPart("none")]


class Encoder:
    """Lets everything go direct, and keeps what went that way."""

    def __init__(self) -> None:
        self.counter = Counter()

    def template(self, choice, kind="text", call=0) -> ByteTemplate:
        return ByteTemplate((kind[:1].encode() + b'"', b'"'), ("text",))


class Kept:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> bool:
        self.data += data
        return True

    async def drain(self) -> None:
        pass


class TestGenerations:
    SCRIPT = ([text("<think>x < y, so")], [text(" a <"), text(" b")], [text("</think>Yes")], [text("."), end()])

    async def run(self, *, direct: bool) -> tuple[list, bytes, str]:
        place = world({"w1": [list(self.SCRIPT)]}, SETTINGS, "qwen3")
        request = GenerationRequest("x", "qwen3", [Message("user", "hi")], stream=direct, sign_reasoning=True)
        generation, sink, events = Generation(place.services, CTX, request), Kept(), []
        await generation.start()
        if direct:
            generation.direct(sink, Encoder())
        async for batch in generation:
            events += batch
        await generation.aclose()
        assert place.idle()
        return events, sink.data, place.services.signer.sign("acme", "x < y, so a < b")

    async def test_the_whole_block_is_signed_although_most_of_it_went_past_the_parser(self):
        for direct in (False, True):
            events, passed, signature = await self.run(direct=direct)
            (found,) = [event.signature for event in events if isinstance(event, ReasoningDelta) and event.signature]
            assert found == signature
            assert (b'r"b"' in passed) == direct
