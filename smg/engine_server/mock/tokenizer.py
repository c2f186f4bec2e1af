"""The mock engine's tokenizer: small, made in code, yet a real byte-level BPE that can spell any text.

Ids 0 to 255 are the bytes themselves, then come the special tokens, then some words. The words make answers that look
like one token per word; the bytes let a test script any text, even half a character.
"""

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from smg.engine_server import bundle

SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
# Like Qwen's, thinking and tool markers are ordinary added tokens: skip_special_tokens keeps their text.
_PLAIN = frozenset(SPECIALS[3:])

_TEXT = (
    "a all and are as at be but by can come day do each ever few for from gate give good great had half has have her "
    "here his how if in is it its just know last left like line long made make many more most must new no not now of "
    "on one only or other our out over part same see she side so some such take tell than that the their them then "
    "there they thing this time to two under up use very was way we well were what when where which while who will "
    "with word work world would year you your hello"
)
_WORDS = _TEXT.split()

SPECIAL_IDS = {text: 256 + number for number, text in enumerate(SPECIALS)}
IM_START = SPECIAL_IDS["<|im_start|>"]
EOS = SPECIAL_IDS["<|im_end|>"]
END_OF_TEXT = SPECIAL_IDS["<|endoftext|>"]
WORD_IDS = {" " + word: 256 + len(SPECIALS) + number for number, word in enumerate(_WORDS)}
VOCAB_SIZE = 256 + len(SPECIALS) + len(WORD_IDS)

CHAT_TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif -%}"
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% elif message['content'] %}{% for part in message['content'] %}{{ part['text'] or '' }}{% endfor %}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '<tool_call>' + call['function'] | tojson + '</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor -%}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}"
)

_SPLIT = re.compile("(" + "|".join(re.escape(text) for text in SPECIALS) + ")")


def byte_alphabet() -> dict[int, str]:
    """Map each byte to the printable character that byte-level BPE vocabularies write it as (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in table)
    return table | {byte: chr(256 + number) for number, byte in enumerate(hidden)}


@functools.cache
def tokenizer() -> Tokenizer:
    """Build the tokenizer (about a millisecond; shared by the process)."""
    alphabet = byte_alphabet()
    vocab = {alphabet[byte]: byte for byte in range(256)} | SPECIAL_IDS
    for word, number in WORD_IDS.items():
        vocab["".join(alphabet[byte] for byte in word.encode())] = number
    # ignore_merges takes a word that is in the vocabulary whole, so no merge table is needed.
    out = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIALS if text not in _PLAIN]
    )
    out.add_tokens([AddedToken(text, special=False, normalized=False) for text in SPECIALS if text in _PLAIN])
    return out


def encode_text(text: str, split: Literal["byte", "word"] = "word") -> list[int]:
    """Ids of ``text``: one per known word and byte, as a gateway's tokenizer gives them, or one per byte.

    Special tokens written in the text become their ids either way.
    """
    if split == "word":
        return list(tokenizer().encode(text, add_special_tokens=False).ids)
    out: list[int] = []
    for piece in _SPLIT.split(text):
        if piece in SPECIAL_IDS:
            out.append(SPECIAL_IDS[piece])
        else:
            out += piece.encode()
    return out


def decode_ids(ids: Iterable[int]) -> str:
    """Text of ``ids``, special tokens written out; bytes that are no UTF-8 become U+FFFD."""
    return str(tokenizer().decode(list(ids), skip_special_tokens=False))


@functools.cache
def archive(context_length: int) -> bytes:
    """The bundle GetTokenizer streams: tokenizer.json, tokenizer_config.json, config.json, generation_config.json."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    model = {"model_type": "mock", "vocab_size": VOCAB_SIZE, "max_position_embeddings": context_length}
    generation = {"eos_token_id": EOS, "pad_token_id": END_OF_TEXT}
    return bundle.pack(
        {
            "tokenizer.json": tokenizer().to_str().encode(),
            "tokenizer_config.json": json.dumps(config).encode(),
            "config.json": json.dumps(model | generation).encode(),
            "generation_config.json": json.dumps(generation).encode(),
        }
    )


def packed(directory: Path) -> tuple[bytes, int]:
    """The files of another tokenizer as a bundle, and the size of its vocabulary. Raises OSError."""
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    return bundle.pack(files), int(Tokenizer.from_str(files["tokenizer.json"].decode()).get_vocab_size())
