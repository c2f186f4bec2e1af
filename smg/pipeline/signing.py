"""Signs the reasoning of an answer, and knows it again in later requests (spec agentic-apis 6.4).

A client that sends its conversation back sends the model's reasoning, too. What carries no signature of this gateway,
for this tenant, was not written by its models, and is not shown to them as their own.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from smg.core.background import background
from smg.core.context import RequestContext
from smg.core.events import Event, Finish, ReasoningDelta, Refusal, TextDelta, ToolCallStart
from smg.core.request import GenerationRequest, Message, ReasoningPart
from smg.core.turns import LONG_BODY
from smg.security.signing import Signer

# What follows a block of reasoning, besides text.
_ENDS = (ToolCallStart, Refusal, Finish)


class Signing:
    """Puts a signature behind each block of reasoning of one choice: a ReasoningDelta without text.

    ``sign`` makes it of the block's text. Text that reaches the client past these events is told by ``passed``.
    """

    def __init__(self, sign: Callable[[str], str]) -> None:
        self._sign = sign
        self._block: list[str] = []

    def passed(self, text: str) -> None:
        """More of the block, which goes before the next events."""
        if text:
            self._block.append(text)

    def signed(self, events: Sequence[Event]) -> list[Event]:
        """``events`` with the signatures of the blocks that are over."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, ReasoningDelta):
                self.passed(event.text)
                if event.signature is not None:
                    # Whoever wrote it has signed it.
                    self._block.clear()
            elif self._block and (isinstance(event, _ENDS) or (isinstance(event, TextDelta) and event.text)):
                out.append(ReasoningDelta(event.choice, "", self._sign("".join(self._block))))
                self._block.clear()
            out.append(event)
        return out


def signing(signer: Signer, ctx: RequestContext, request: GenerationRequest) -> Signing | None:
    """What signs one choice of the answer to ``request``; None where nobody wants that."""
    return Signing(lambda text: signer.sign(ctx.tenant, text)) if request.sign_reasoning else None


async def verified(signer: Signer, ctx: RequestContext, request: GenerationRequest) -> GenerationRequest:
    """``request`` without the reasoning of earlier turns that is not signed, if it asks for that.

    Megabytes of reasoning are looked at in a thread.
    """
    if not request.verify_reasoning:
        return request
    if _size(request) > LONG_BODY:
        return await background(_verified, signer, ctx, request)
    return _verified(signer, ctx, request)


def _size(request: GenerationRequest) -> int:
    """The characters of all reasoning."""
    lists = (message.content for message in request.messages if isinstance(message.content, list))
    return sum(len(part.text) for parts in lists for part in parts if isinstance(part, ReasoningPart))


def _verified(signer: Signer, ctx: RequestContext, request: GenerationRequest) -> GenerationRequest:
    def ours(part: object) -> bool:
        return not isinstance(part, ReasoningPart) or signer.verify(ctx.tenant, part.text, part.signature or "")

    def kept(message: Message) -> Message:
        if not isinstance(message.content, list):
            return message
        parts = [part for part in message.content if ours(part)]
        return message if len(parts) == len(message.content) else replace(message, content=parts)

    return replace(request, messages=[kept(message) for message in request.messages])
