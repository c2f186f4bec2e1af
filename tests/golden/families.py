"""Small tokenizers of the families that models use, built and trained here with the ``tokenizers`` library."""

import json
from collections.abc import Callable
from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.golden.corpus import TRAINING

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")


def special(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, special=True, normalized=False, **flags)


def _byte_level(*before: pre_tokenizers.PreTokenizer, regex: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, last])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _train_byte_level(tokenizer: Tokenizer, *added: AddedToken) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.add_tokens(list(added))
    return tokenizer


def _gpt2() -> Tokenizer:
    return _train_byte_level(_byte_level(regex=True), special("<|endoftext|>"), special("<|im_end|>"))


def _llama3() -> Tokenizer:
    tokenizer = _byte_level(pre_tokenizers.Split(Regex(CL100K), "isolated"))
    names = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    tokenizer = _train_byte_level(tokenizer, *map(special, names))
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing("<|begin_of_text|> $A", None, [("<|begin_of_text|>", bos)])
    return tokenizer


def _qwen2() -> Tokenizer:
    tokenizer = _byte_level(pre_tokenizers.Split(Regex(QWEN2), "isolated"))
    tokenizer.normalizer = normalizers.NFC()
    tools = [AddedToken(text, normalized=False) for text in ("<think>", "</think>", "<tool_call>")]
    return _train_byte_level(tokenizer, special("<|im_start|>"), special("<|im_end|>"), *tools)


def _smollm() -> Tokenizer:
    tokenizer = _byte_level(pre_tokenizers.Digits(individual_digits=True), regex=True)
    return _train_byte_level(tokenizer, special("<|im_start|>"), special("<|im_end|>"))


def _awkward() -> Tokenizer:
    """Byte-level BPE with every kind of added token that makes cutting unsafe, beside safe ones."""
    added = (
        special("<|user|>", rstrip=True),
        special("<|tool|>", lstrip=True),
        special("<|end|>"),
        special("<|end|>er"),
        special("<|e"),
        special("word", single_word=True),
        special("<END"),
        AddedToken("<Normal>", special=True, normalized=True),
    )
    tokenizer = _byte_level(regex=True)
    tokenizer.normalizer = normalizers.NFKC()
    return _train_byte_level(tokenizer, *added)


def _byte_fallback(tokenizer: Tokenizer) -> Tokenizer:
    """Train a BPE and give it the 256 byte tokens, as SentencePiece does."""
    names = ["<unk>", "<s>", "</s>"]
    data = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=names + data, show_progress=False)
    tokenizer.train_from_iterator([line for line in TRAINING if line.isascii()], trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in names]
    state["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    return Tokenizer.from_str(json.dumps(state))


_SENTENCEPIECE = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def _llama2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = _SENTENCEPIECE
    tokenizer = _byte_fallback(tokenizer)
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", bos)])
    return tokenizer


def _metaspace_first() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = _SENTENCEPIECE
    return _byte_fallback(tokenizer)


# Words by case, as tekken and o200k have them, and numbers digit by digit.
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _tekken() -> Tokenizer:
    tokenizer = _byte_level(pre_tokenizers.Split(Regex(TEKKEN), "isolated"))
    names = ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]")
    tokenizer = _train_byte_level(tokenizer, *map(special, names))
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", bos)])
    return tokenizer


def _deepseek() -> Tokenizer:
    """Three splits in a row: numbers, then CJK, then words with their signs; specials with full-width bars."""
    # The published files have newlines themselves in this expression, not their escapes.
    words = (
        (
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        .replace(r"\r", "\r")
        .replace(r"\n", "\n")
    )
    splits = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", words)
    ]
    names = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")
    return _train_byte_level(_byte_level(*splits), *map(special, names))


def _gemma() -> Tokenizer:
    """SentencePiece BPE without a mark at the front, on text cut behind every space."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = _byte_fallback(tokenizer)
    tokenizer.add_tokens([special("<start_of_turn>"), special("<end_of_turn>"), AddedToken("\n\n", normalized=False)])
    return tokenizer


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    names = ["<pad>", "</s>", "<unk>", "<extra_id_0>"]
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=names, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", 1)])
    return tokenizer


def _wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": _gpt2,
    "llama3": _llama3,
    "qwen2": _qwen2,
    "smollm": _smollm,
    "awkward": _awkward,
    "llama2": _llama2,
    "metaspace first": _metaspace_first,
    "tekken_style": _tekken,
    "deepseek": _deepseek,
    "gemma": _gemma,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
}


@cache
def family(name: str) -> Tokenizer:
    """The trained tokenizer of a family; the same object each time."""
    return FAMILIES[name]()


def added_texts(tokenizer: Tokenizer) -> list[str]:
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()]


def literals(tokenizer: Tokenizer) -> dict[str, int]:
    """What ``CachedEncoder`` asks for: the added tokens that are matched before normalisation."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: number for number, token in added.items() if not token.normalized}


class Plain:
    """A tokenizer of the library behind our ``encode``, counting characters it was given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.encoded = 0

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        self.encoded += len(text)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
