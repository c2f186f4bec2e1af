"""A byte-level BPE as large as those of real models, made in a second."""

import json
import random
from pathlib import Path

from smg.engine_server.splits import QWEN2
from smg.text.token_bytes import byte_letters
from tests.text.makers import CHATML, SPECIALS

SIZE = 150_000


def write_large(directory: Path, size: int = SIZE) -> Path:
    """Write a model with Qwen's split, ``size`` tokens of random merges and ChatML's special tokens."""
    rng = random.Random(size)
    texts = byte_letters()
    vocab = {text: number for number, text in enumerate(texts)}
    merges: list[str] = []
    while len(vocab) < size:
        # Squared: mostly of short ones, as in real vocabularies.
        left, right = (texts[int(len(texts) * rng.random() ** 2)] for _ in range(2))
        both = left + right
        if len(both) <= 24 and both not in vocab:
            vocab[both] = len(vocab)
            merges.append(f"{left} {right}")
            texts.append(both)
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    told = {
        "version": "1.0",
        "added_tokens": [{"id": size + at, "content": text, **flags} for at, text in enumerate(SPECIALS)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    directory.mkdir(exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(told), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML, "eos_token": "<|im_end|>"}))
    return directory
