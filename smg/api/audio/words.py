"""The words in what Qwen3-ASR writes (spec agentic-apis 9): ``language NAME<asr_text>WORDS``, or the words alone.

Streamed and buffered answers both read the output through ``Words``, however it is split.
"""

MARK = "<asr_text>"

_LEAD = "language "
# The longest name of a language is far shorter; what goes on for longer without a mark is speech.
_LONGEST = len(_LEAD) + 40


class Words:
    """Takes the language in front of the words off the output, and white space around them.

    The words are what all ``feed`` and then ``finish`` return, joined.
    """

    def __init__(self) -> None:
        self._held: str | None = ""
        self._space = ""
        self._begun = False

    def feed(self, text: str) -> str:
        """The words that are certain with ``text``, the next piece of the output."""
        if self._held is not None:
            held = (self._held + text).lstrip()
            before, mark, after = held.partition(MARK)
            if mark and _names(before):
                held = after
            elif _may_name(held):
                self._held = held
                return ""
            self._held, text = None, held
        return self._trim(text)

    def finish(self) -> str:
        """The words at the end that might have been something else."""
        held, self._held = self._held or "", None
        return self._trim(held)

    def _trim(self, text: str) -> str:
        text = self._space + text
        if not self._begun:
            text = text.lstrip()
        words = text.rstrip()
        self._begun = self._begun or bool(words)
        self._space = text[len(words) :]
        return words


def words_of(output: str) -> str:
    """The words of a whole output."""
    words = Words()
    return words.feed(output) + words.finish()


def _names(before: str) -> bool:
    """Whether the text before a mark is a language's name, or nothing."""
    return not before or (before.startswith(_LEAD) and len(before) <= _LONGEST and "\n" not in before)


def _may_name(text: str) -> bool:
    """Whether a text without a mark that counts may still become the name of a language and a mark."""
    if _LEAD.startswith(text) or MARK.startswith(text):
        return True
    return text.startswith(_LEAD) and MARK not in text and len(text) < _LONGEST + len(MARK) and "\n" not in text
