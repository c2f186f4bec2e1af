"""What goes into the prepared file of one tokenizer, which is loaded by the library once for all workers."""

from pathlib import Path

import msgspec

from smg._native.vocab_table import VocabTable
from smg._native.word_table import WordTable
from smg.fleet.tokenizer_files import digest
from smg.text.config_files import TokenizerError
from smg.text.mapped.file import Head
from smg.text.mapped.version import VERSION
from smg.text.shield import JOINER
from smg.text.vocabulary import LoadedVocabulary

# Of tokenizer_config.json, what only the library reads; often the larger part of it.
_FOR_LOADING = ("added_tokens_decoder",)


class Prepared(msgspec.Struct, frozen=True):
    """What a file will hold; ``write`` takes the two."""

    head: Head
    sections: dict[str, bytes | memoryview]


def prepare(directory: Path, key: str) -> Prepared:
    """Load the tokenizer in ``directory`` and take from it what a worker needs.

    Of what only the library can encode with, this is no more than that it is so: nobody will try again.

    Raises:
        TokenizerError: it cannot be loaded.
    """
    sources = digest(directory)
    loaded = LoadedVocabulary(directory)
    config = {name: value for name, value in loaded.facts.config.items() if name not in _FOR_LOADING}
    facts = msgspec.structs.replace(loaded.facts, config=config)
    fast = loaded.fast
    if fast is None:
        return Prepared(Head(VERSION, key, sources, facts, loaded.reason), {})
    tokens = loaded.library("").vocabulary()
    ids = WordTable.pack({text.encode(): token for text, token in tokens.items() if text != JOINER})
    sections: dict[str, bytes | memoryview] = {"encoder": fast.native.tobytes(), "ids": ids}
    decoder_error = ""
    try:
        sections["vocab"] = VocabTable.of(loaded.decoder()).tobytes()
    except TokenizerError as error:
        decoder_error = str(error)
    added = [(text, token) for text, token in fast.added if text != JOINER]
    return Prepared(Head(VERSION, key, sources, facts, "", decoder_error, added, fast.normalised), sections)
