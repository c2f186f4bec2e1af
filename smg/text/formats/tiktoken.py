"""tiktoken rank files (spec text-pipeline 1.4): a line per token, its bytes in base64 and its rank.

The file has neither the expression that cuts words nor the special tokens. tokenizer_config.json may declare the
latter; the rest is known of the model families that come as such files, which are told apart by config.json, by the
class in tokenizer_config.json, by the file's name or by its number of ranks.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from smg.engine_server import splits
from smg.text.bpe.description import GPT2_SPLIT, KIMI_SPLIT, O200K_SPLIT
from smg.text.formats.byte_ranks import from_ranks
from smg.text.formats.loaded import FormatError, Loaded

_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+")


class Family(msgspec.Struct, frozen=True):
    """What a family's files do not say: ``pattern`` of words, ``specials`` by the number of ranks, ``defaults``, and
    whether its own tokenizer brings a text into normal form C (``nfc``)."""

    pattern: str
    specials: Callable[[int], dict[str, int]] = lambda ranks: {}
    defaults: dict[str, Any] = {}
    nfc: bool = False


def read(path: Path, config: Mapping[str, Any], model: Mapping[str, Any]) -> Loaded:
    """Read the rank file ``path``; ``config`` is tokenizer_config.json and ``model`` config.json beside it.

    Raises:
        FormatError: not a rank file, or special tokens that contradict it.
    """
    ranks = _ranks(path)
    family = _family(path, config, model, len(ranks))
    specials = family.specials(len(ranks))
    declared = {token["content"]: int(number) for number, token in _declared(config).items()}
    taken = set(declared.values())
    specials = {text: number for text, number in specials.items() if number not in taken and text not in declared}
    specials = dict(sorted((specials | declared).items(), key=lambda entry: entry[1]))
    return Loaded(from_ranks(ranks, specials, family.pattern, nfc=family.nfc), family.defaults)


def is_rank_file(path: Path) -> bool:
    """Whether the file begins as a rank file does (SentencePiece models share the name tokenizer.model)."""
    with path.open("rb") as file:
        return _LINE.fullmatch(file.readline(1024).strip()) is not None


def _ranks(path: Path) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    try:
        for line in path.read_bytes().splitlines():
            if line:
                token, rank = line.split()
                found[base64.b64decode(token, validate=True)] = int(rank)
    except (OSError, ValueError, binascii.Error) as error:
        raise FormatError(f"{path} is no tiktoken rank file: {error}") from None
    return found


def _declared(config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    declared = config.get("added_tokens_decoder") or {}
    if not isinstance(declared, dict) or not all(
        number.isdecimal() and isinstance(token, dict) and isinstance(token.get("content"), str)
        for number, token in declared.items()
    ):
        raise FormatError("added_tokens_decoder in tokenizer_config.json is not understood")
    return declared


def _family(path: Path, config: Mapping[str, Any], model: Mapping[str, Any], ranks: int) -> Family:
    kind = str(model.get("model_type") or "")
    code = repr(config.get("auto_map") or "")
    if "tokenization_kimi" in code or kind in ("kimi_k2", "kimi_k25", "kimi_k3"):
        return Family(KIMI_SPLIT, _kimi)
    if kind == "qwen" or config.get("tokenizer_class") == "QWenTokenizer" or path.name == "qwen.tiktoken":
        return Family(splits.QWEN2, _qwen, {"eos_token": "<|endoftext|>"}, nfc=True)
    if kind == "gpt_oss" or path.name in ("o200k_base.tiktoken", "o200k_harmony.tiktoken"):
        return Family(O200K_SPLIT, _harmony, {"bos_token": "<|startoftext|>", "eos_token": "<|return|>"})
    if path.name in _OPENAI:
        return _OPENAI[path.name]
    if kind == "llama4" or ranks == 200_000:
        return Family(O200K_SPLIT, _llama4, _LLAMA | {"eos_token": "<|eot|>"})
    if kind in ("llama", "mllama") or ranks == 128_000:
        return Family(splits.LLAMA3, _llama3, _LLAMA | {"eos_token": "<|eot_id|>"})
    return Family(splits.LLAMA3)


def _cl100k(ranks: int) -> dict[str, int]:
    named = {"endoftext": 100257, "fim_prefix": 100258, "fim_middle": 100259, "fim_suffix": 100260}
    return {f"<|{name}|>": number for name, number in (named | {"endofprompt": 100276}).items()}


def _gpt2(ranks: int) -> dict[str, int]:
    return {"<|endoftext|>": 50256}


_END = {"eos_token": "<|endoftext|>"}
_OPENAI = {
    "cl100k_base.tiktoken": Family(splits.LLAMA3, _cl100k, _END),
    "p50k_base.tiktoken": Family(GPT2_SPLIT, _gpt2, _END),
    "r50k_base.tiktoken": Family(GPT2_SPLIT, _gpt2, _END),
}

_LLAMA = {"bos_token": "<|begin_of_text|>", "add_bos_token": True}


def _numbered(names: list[str], first: int) -> dict[str, int]:
    return {name: first + index for index, name in enumerate(names)}


def _kimi(ranks: int) -> dict[str, int]:
    return {f"<|reserved_token_{number}|>": number for number in range(ranks, ranks + 256)}


def _qwen(ranks: int) -> dict[str, int]:
    named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return _numbered([*named, *(f"<|extra_{index}|>" for index in range(205))], ranks)


def _harmony(ranks: int) -> dict[str, int]:
    named = {
        "<|startoftext|>": 199998,
        "<|endoftext|>": 199999,
        "<|return|>": 200002,
        "<|constrain|>": 200003,
        "<|channel|>": 200005,
        "<|start|>": 200006,
        "<|end|>": 200007,
        "<|message|>": 200008,
        "<|call|>": 200012,
        "<|endofprompt|>": 200018,
    }
    others = set(range(200000, 201088)) - set(named.values())
    return named | {f"<|reserved_{number}|>": number for number in sorted(others)}


def _llama3(ranks: int) -> dict[str, int]:
    """As of Llama 3.2, whose list agrees with those of 3 and 3.1 in every token their templates use."""
    names = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1"]
    names += ["finetune_right_pad_id", "step_id", "start_header_id", "end_header_id", "eom_id", "eot_id"]
    names += ["python_tag", "image"]
    names += [f"reserved_special_token_{index}" for index in range(2, 246)]
    return _numbered([f"<|{name}|>" for name in names], ranks)


def _llama4(ranks: int) -> dict[str, int]:
    def reserved(part: str, start: int, stop: int) -> list[str]:
        return [f"{part}_reserved_special_token_{index}" for index in range(start, stop)]

    names = ["begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix"]
    names += ["header_start", "header_end", "eom", "eot", "step", *reserved("text_post_train", 0, 6)]
    names += ["python_start", "python_end", "finetune_right_pad", *reserved("text_post_train", 8, 69)]
    names += ["image_start", "image_end", *reserved("vision", 0, 2), "tile_x_separator", "tile_y_separator"]
    names += [*reserved("vision", 2, 6), "image", *reserved("vision", 6, 7), "patch", *reserved("vision", 7, 1048)]
    names += [*reserved("reasoning", 0, 8), "reasoning_thinking_start", "reasoning_thinking_end"]
    names += [f"reserved_special_token_{index}" for index in range(2048 - len(names))]
    return _numbered([f"<|{name}|>" for name in names], ranks)
