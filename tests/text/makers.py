"""Small real tokenizers, made with the library, and directories as models come in."""

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CORPUS = ["hello world, the quick brown fox jumps over the lazy dog", "system user assistant im_start im_end |> <|"] * 8


@cache
def byte_level_json() -> str:
    """A byte-level BPE with ChatML's special tokens and one added token that is not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIALS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return tokenizer.to_str()


PIECES = ("▁", "a", "b", "c", "s", "▁a", "▁b", "<", "/", ">", "▁/", "▁▁", "▁▁▁▁", ".", "▁do", "▁n", "'t", "▁stop", "▁.")
MERGES = [("▁", "a"), ("▁", "b"), ("▁", "/"), ("▁", "▁"), ("▁▁", "▁▁")]


@cache
def metaspace_json(kind: str) -> str:
    """SentencePiece-style BPE with byte fallback: ``legacy`` (Prepend, Strip), ``first`` or ``never`` (Metaspace)."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    vocabulary = {text: index for index, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES, byte_fallback=True, unk_token="<unk>"))
    if kind == "legacy":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        end = [decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *end]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=kind)])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in texts[:3]])
    return tokenizer.to_str()


def write_model(directory: Path, tokenizer: str, **files: object) -> Path:
    """Write a model directory: ``tokenizer_config={…}`` becomes tokenizer_config.json, and so on."""
    directory.mkdir(exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer, "utf-8")
    for name, value in files.items():
        (directory / f"{name}.json").write_text(json.dumps(value), "utf-8")
    return directory


def chat_model(directory: Path, template: str | None = CHATML) -> Path:
    """A byte-level chat model with ChatML."""
    config = {"eos_token": "<|im_end|>", "bos_token": None} | ({} if template is None else {"chat_template": template})
    return write_model(directory, byte_level_json(), tokenizer_config=config)
