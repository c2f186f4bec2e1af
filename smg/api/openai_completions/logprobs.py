"""Log probabilities as completions print them: parallel lists with the place of each token in the text."""

from collections.abc import Sequence

from smg.api.openai_completions.types import CompletionLogprobs
from smg.api.openai_parts import UNLIKELY
from smg.core.batch import TokenLogprobs
from smg.core.stream import Decoder
from smg.text.positions import Positions


def prompt_logprobs(rows: Sequence[TokenLogprobs], text: str, decoder: Decoder) -> CompletionLogprobs:
    """The rows of an echoed prompt of ``text``. Tokens that do not show in it (a BOS) begin where the next one does."""
    out = CompletionLogprobs()
    data = text.encode()
    place = chars = 0
    for number, row in enumerate(rows):
        piece = decoder.token_bytes(row.token)
        if place == 0 and not data.startswith(piece):
            piece = decoder.first_bytes(row.token)
        # Inside a character, its beginning counts.
        inside = place < len(data) and data[place] & 0xC0 == 0x80
        _add(out, row, chars - inside, decoder, none=number == 0)
        if data.startswith(piece, place):
            place += len(piece)
            chars += sum(byte & 0xC0 != 0x80 for byte in piece)
    return out


class OutputLogprobs:
    """The rows of one choice's output, as they come; ``offset`` is the length of the text before it."""

    def __init__(self, decoder: Decoder, offset: int, *, skip_special_tokens: bool) -> None:
        self._decoder = decoder
        self._offset = offset
        self._positions = Positions(decoder, skip_special_tokens=skip_special_tokens)

    def take(self, rows: Sequence[TokenLogprobs]) -> CompletionLogprobs:
        """The next rows."""
        out = CompletionLogprobs()
        for row in rows:
            _add(out, row, self._offset + self._positions.feed(row.token), self._decoder)
        return out


def _add(out: CompletionLogprobs, row: TokenLogprobs, offset: int, decoder: Decoder, *, none: bool = False) -> None:
    value = UNLIKELY if row.logprob is None and not none else row.logprob
    top = {token_text(token, decoder): logprob for token, logprob in row.top}
    text = token_text(row.token, decoder)
    if value is not None:
        # The sampled token is always among them, also when it is none of the best.
        top.setdefault(text, value)
    out.tokens.append(text)
    out.token_logprobs.append(value)
    out.top_logprobs.append(top or None)
    out.text_offset.append(offset)


def token_text(token: int, decoder: Decoder) -> str:
    """A token's text; bytes that are no UTF-8 by themselves are spelled out, so that no two tokens look the same."""
    if not 0 <= token < decoder.size:
        return f"<token_{token}>"
    data = decoder.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
