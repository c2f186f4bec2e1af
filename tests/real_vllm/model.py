"""The embedded engine's model as a Hugging Face directory, which is what vLLM loads.

Weights are dequantised to bfloat16 safetensors; the tokenizer files are those of the embedded engine's own bundle.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize

from smg.engine_server.llama import tokenizer_bundle

_FLAT = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_model(gguf: Path, directory: Path) -> Path:
    """Write the model of ``gguf``, one of the Llama architecture, to ``directory``; what is there already stays."""
    done = directory / "model.safetensors"
    if done.exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(str(gguf))
    metadata = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    end = int(metadata["tokenizer.ggml.eos_token_id"])
    with zipfile.ZipFile(io.BytesIO(tokenizer_bundle.build(metadata, [end]))) as bundle:
        bundle.extractall(directory)
    tensors = dict(_tensors(reader, metadata))
    config = json.loads((directory / "config.json").read_text()) | _config(
        metadata, tied="lm_head.weight" not in tensors
    )
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    partial = done.with_suffix(".partial")
    partial.write_bytes(_safetensors(tensors))
    partial.rename(done)
    return directory


def _config(metadata: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": int(metadata["llama.embedding_length"]),
        "intermediate_size": int(metadata["llama.feed_forward_length"]),
        "num_hidden_layers": int(metadata["llama.block_count"]),
        "num_attention_heads": int(metadata["llama.attention.head_count"]),
        "num_key_value_heads": int(metadata["llama.attention.head_count_kv"]),
        "head_dim": int(metadata["llama.rope.dimension_count"]),
        "rms_norm_eps": round(float(metadata["llama.attention.layer_norm_rms_epsilon"]), 9),
        "rope_theta": float(metadata["llama.rope.freq_base"]),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
    }


def _tensors(reader: GGUFReader, metadata: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    heads = {"attn_q": metadata["llama.attention.head_count"], "attn_k": metadata["llama.attention.head_count_kv"]}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).reshape([int(size) for size in reversed(tensor.shape)])
        if tensor.name in _FLAT:
            yield _FLAT[tensor.name], weights
            continue
        _, layer, part, kind = tensor.name.split(".")
        if part in heads:
            weights = _rotary_halves(weights, int(heads[part]))
        yield f"model.layers.{layer}.{_LAYER[part]}.{kind}", weights


def _rotary_halves(weights: np.ndarray, heads: int) -> np.ndarray:
    """Put the halves of each head behind each other again, which llama.cpp interleaves."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _bfloat16(weights: np.ndarray) -> bytes:
    """Round float32 to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(weights, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def _safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    pieces: list[bytes] = []
    offset = 0
    for name, weights in tensors.items():
        data = _bfloat16(weights)
        header[name] = {"dtype": "BF16", "shape": list(weights.shape), "data_offsets": [offset, offset + len(data)]}
        pieces.append(data)
        offset += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *pieces])
