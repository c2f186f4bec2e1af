"""The tokenizer bundle of a GGUF model: its metadata as the files Hugging Face tokenizers load.

Byte-level BPE models are handled, with the pre-tokenizers listed here, each spelled as the original model's own, and
SentencePiece BPE models, whose model file is written again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from smg.engine_server import bundle, splits
from smg.engine_server.llama.sentencepiece_model import model_file

# Token types of GGUF that are not text of the vocabulary.
_CONTROL = 3
_USER_DEFINED = 4


class UnknownTokenizer(Exception):
    """The GGUF's tokenizer is of a kind that can't be exported faithfully; the gateway needs another source."""


def build(metadata: Mapping[str, Any], end_ids: Sequence[int]) -> bytes:
    """Zip the tokenizer (tokenizer.json, or SentencePiece's tokenizer.model), tokenizer_config.json, config.json and
    generation_config.json (spec engine-contract 2.10).

    ``end_ids`` are the ids that end a generation, the model's own end of sequence first.

    Raises:
        UnknownTokenizer: neither SentencePiece nor a byte-level BPE with a known pre-tokenizer.
    """
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    arch = str(metadata["general.architecture"])
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    special = {key: metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos", "unknown", "padding")}
    named = {key: None if number is None else tokens[number] for key, number in special.items()}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": named["bos"],
        "eos_token": named["eos"],
        "unk_token": named["unknown"],
        "pad_token": named["padding"],
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", sentencepiece)),
        "model_max_length": metadata.get(f"{arch}.context_length", 0),
        "clean_up_tokenization_spaces": False,
    }
    if "tokenizer.chat_template" in metadata:
        tokenizer_config["chat_template"] = metadata["tokenizer.chat_template"]
    generation = {"bos_token_id": special["bos"], "pad_token_id": special["padding"], "eos_token_id": list(end_ids)}
    config = {
        "model_type": arch,
        "vocab_size": len(tokens),
        "max_position_embeddings": metadata.get(f"{arch}.context_length", 0),
        **generation,
    }
    if sentencepiece:
        name, content = "tokenizer.model", _model_file(metadata)
    else:
        name, content = "tokenizer.json", tokenizer(metadata).to_str().encode()
    return bundle.pack(
        {
            name: content,
            "tokenizer_config.json": json.dumps(tokenizer_config).encode(),
            "config.json": json.dumps(config).encode(),
            "generation_config.json": json.dumps(generation).encode(),
        }
    )


def _model_file(metadata: Mapping[str, Any]) -> bytes:
    try:
        return model_file(metadata)
    except (KeyError, ValueError) as error:
        raise UnknownTokenizer(f"this GGUF has no complete SentencePiece vocabulary ({error})") from None


def tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer described by GGUF ``metadata``. Raises UnknownTokenizer as ``build``."""
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise UnknownTokenizer(f"tokenizers of model {model!r} can't be exported, only byte-level BPE")
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    vocab = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    name = metadata.get("tokenizer.ggml.pre", "default")
    out = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=name == "llama-bpe"))
    _set_pre_tokenizer(out, name)
    out.decoder = decoders.ByteLevel()
    added = {
        kind: [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, of in zip(tokens, kinds, strict=True)
            if of == kind
        ]
        for kind in (_CONTROL, _USER_DEFINED)
    }
    out.add_special_tokens(added[_CONTROL])
    out.add_tokens(added[_USER_DEFINED])
    if metadata.get("tokenizer.ggml.add_bos_token"):
        number = metadata["tokenizer.ggml.bos_token_id"]
        bos = tokens[number]
        out.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, number)]
        )
    return out


def _set_pre_tokenizer(out: Tokenizer, name: str) -> None:
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bare = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    match name:
        case "gpt-2":
            out.pre_tokenizer = whole
        case "smollm":
            # Every digit is a token of its own.
            out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole])
        case "qwen2":
            out.normalizer = normalizers.NFC()
            out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(splits.QWEN2), "isolated"), bare])
        case "llama-bpe":
            out.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(splits.LLAMA3), "isolated"), bare])
        case _:
            raise UnknownTokenizer(f"the pre-tokenizer {name!r} of this GGUF is not known")
