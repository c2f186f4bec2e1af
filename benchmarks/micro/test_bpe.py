"""Encoding a prompt: the native encoder beside the tokenizers library."""

import unicodedata

import pytest

from smg.text.bpe import prove
from smg.text.bpe.probes import PROBES
from tests.text.bpe.test_encoder import SPLITS, library, trained

TEXT = unicodedata.normalize("NFC", "\n".join(PROBES) * 4)


@pytest.fixture(scope="module")
def tokenizer():
    return trained(list(SPLITS)[1], nfc=True)


@pytest.mark.benchmark(group="encode")
def test_native(benchmark, tokenizer):
    benchmark.extra_info["tokens"] = len(benchmark(prove(tokenizer, library(tokenizer)).encode, TEXT))


@pytest.mark.benchmark(group="encode")
def test_library(benchmark, tokenizer):
    benchmark.extra_info["tokens"] = len(benchmark(library(tokenizer), TEXT))
