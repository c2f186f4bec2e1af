"""The reasoning that comes before a constrained answer, and what must be left free for it (case SO-02)."""

import msgspec

from smg.constraints import formats
from smg.constraints.formats import Piece
from smg.parsing.base import Start
from smg.parsing.format import Format
from smg.parsing.harmony import Harmony
from smg.parsing.reasoning import kimi_k3
from smg.parsing.reasoning.delimiters import Delimiters, rules_of
from smg.parsing.reasoning.muse import Muse


class Lead(msgspec.Struct, frozen=True):
    """Reasoning up to ``closer``. ``opener`` is empty when the prompt has opened it. ``after`` opens the answer.

    ``optional``: the model may answer at once. ``text`` opens an answer that is no call, whether there is reasoning or
    not. ``ours``: no engine can be left to wait for the end of this.
    """

    closer: str
    opener: str = ""
    after: str = ""
    optional: bool = False
    text: str = ""
    ours: bool = False

    def before(self, answer: Piece) -> Piece:
        """The whole output: reasoning in any words, then ``answer``."""
        pieces = [formats.tag(self.opener, formats.ANY_TEXT, self.closer)]
        if self.after:
            pieces.append(formats.const(self.after))
        whole = formats.sequence(*pieces, answer)
        return formats.either(answer, whole) if self.optional else whole

    def headed(self, text: Piece) -> Piece:
        """``text`` as an answer that is no call."""
        return formats.sequence(formats.const(self.text), text) if self.text else text


# An answer is a message, for which the prompt has begun a header; reasoning is a message of its own in front of it.
_MESSAGES: dict[object, Lead] = {
    Harmony: Lead(
        "<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>",
        optional=True,
        text="<|channel|>final<|constrain|>json<|message|>",
        ours=True,
    ),
    Muse: Lead(
        "<|eom|><|start|>assistant", " to=self<|message|>", optional=True, text=" to=user<|message|>", ours=True
    ),
}


def lead(reasoning: Format, start: Start) -> Lead | None:
    """What the model says before its answer to the prompt of ``start``; None: it answers at once.

    Formats without a closer that always comes (typed blocks, phrases that need not be said) count as answering at once.
    """
    if reasoning.factory is kimi_k3.KimiK3:
        thinks = kimi_k3.KimiK3.starts_inside(start)
        return Lead(kimi_k3.THINK_CLOSER, after=kimi_k3.RESPONSE_OPENER) if thinks else None
    if reasoning.factory in _MESSAGES and start.prompt_tail.endswith("<|start|>assistant"):
        return _MESSAGES[reasoning.factory]
    rules = rules_of(reasoning.factory)
    if rules is None:
        return None
    if start.history:
        opened = rules.starts_inside(start) or any(text in start.history for text in rules.openers)
        closed = any(text in start.history for text in rules.closers)
        return Lead(_closer(rules, start)) if opened and not closed else None
    if rules.starts_inside(start):
        return Lead(_closer(rules, start))
    thinks = start.thinking is True and not rules.closed(start) and bool(rules.openers)
    return Lead(_closer(rules, start), rules.openers[0]) if thinks else None


def _closer(rules: Delimiters, start: Start) -> str:
    """The spelling that goes with the prompt's opener, or the one that all spellings contain."""
    if len(rules.closers) != len(rules.openers):
        return min(rules.closers, key=len)
    tail = start.prompt_tail.rstrip()
    pairs = zip(rules.openers, rules.closers, strict=True)
    return next((closer for opener, closer in pairs if tail.endswith(opener)), rules.closers[0])
