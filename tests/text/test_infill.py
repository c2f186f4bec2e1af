"""Prompts with a gap, by family."""

import pytest

from smg.core.errors import GatewayError
from smg.text.infill import infill


class Vocabulary:
    def __init__(self, *tokens):
        self._tokens = tokens

    def token_id(self, text):
        return self._tokens.index(text) if text in self._tokens else None


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), "<|fim_prefix|>A<|fim_suffix|>B<|fim_middle|>"),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), "<fim_prefix>A<fim_suffix>B<fim_middle>"),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), "<｜fim▁begin｜>A<｜fim▁hole｜>B<｜fim▁end｜>"),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), "<PRE> A <SUF>B <MID>"),
        (("[SUFFIX]", "[PREFIX]"), "[SUFFIX]B[PREFIX]A"),
    ],
)
def test_a_family_is_known_by_its_tokens(tokens, expected):
    assert infill(Vocabulary("x", *tokens), "A", "B") == expected


@pytest.mark.parametrize("tokens", [(), ("<|fim_prefix|>", "<|fim_suffix|>"), ("[PREFIX]",)])
def test_a_model_without_all_of_them_cannot(tokens):
    with pytest.raises(GatewayError) as caught:
        infill(Vocabulary(*tokens), "A", "B")
    assert (caught.value.code, caught.value.status, caught.value.param) == ("unsupported_parameter", 400, "suffix")
