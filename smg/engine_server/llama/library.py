"""llama.cpp's C API out of the xllamacpp wheel, by ctypes: no compiler, and decode loops of our own.

The wheel's one shared object exports every ``llama_*`` function, and those of llguidance (``llg_*``), which it was
built with for constrained decoding. Structs must have exactly the wheel's layout: the version is pinned, and ``load``
reads the libraries' own defaults back through ours.
"""

import ctypes as c
import functools
import importlib.metadata
import importlib.util
import os
from pathlib import Path

VERSION = "2026.10.11549"
_INSTALL = "install the extra 'llama'; in a checkout: scripts/serve does it"


class ModelParams(c.Structure):
    """``struct llama_model_params``."""

    _fields_ = [
        ("devices", c.c_void_p),
        ("tensor_buft_overrides", c.c_void_p),
        ("n_gpu_layers", c.c_int32),
        ("split_mode", c.c_int),
        ("load_mode", c.c_int),
        ("lazy_mode", c.c_int),
        ("main_gpu", c.c_int32),
        ("tensor_split", c.c_void_p),
        ("progress_callback", c.c_void_p),
        ("progress_callback_user_data", c.c_void_p),
        ("kv_overrides", c.c_void_p),
        ("vocab_only", c.c_bool),
        ("check_tensors", c.c_bool),
        ("use_extra_bufts", c.c_bool),
        ("no_host", c.c_bool),
        ("no_alloc", c.c_bool),
        ("load_mtp", c.c_bool),
    ]


class ContextParams(c.Structure):
    """``struct llama_context_params``."""

    _fields_ = [
        ("n_ctx", c.c_uint32),
        ("n_batch", c.c_uint32),
        ("n_ubatch", c.c_uint32),
        ("n_seq_max", c.c_uint32),
        ("n_rs_seq", c.c_uint32),
        ("n_outputs_max", c.c_uint32),
        ("n_outputs_max_per_seq", c.c_uint32),
        ("n_threads", c.c_int32),
        ("n_threads_batch", c.c_int32),
        ("ctx_type", c.c_int),
        ("rope_scaling_type", c.c_int),
        ("pooling_type", c.c_int),
        ("attention_type", c.c_int),
        ("flash_attn_type", c.c_int),
        ("rope_freq_base", c.c_float),
        ("rope_freq_scale", c.c_float),
        ("yarn_ext_factor", c.c_float),
        ("yarn_attn_factor", c.c_float),
        ("yarn_beta_fast", c.c_float),
        ("yarn_beta_slow", c.c_float),
        ("yarn_orig_ctx", c.c_uint32),
        ("defrag_thold", c.c_float),
        ("cb_eval", c.c_void_p),
        ("cb_eval_user_data", c.c_void_p),
        ("type_k", c.c_int),
        ("type_v", c.c_int),
        ("moe_cache_size", c.c_size_t),
        ("abort_callback", c.c_void_p),
        ("abort_callback_data", c.c_void_p),
        ("embeddings", c.c_bool),
        ("offload_kqv", c.c_bool),
        ("no_perf", c.c_bool),
        ("op_offload", c.c_bool),
        ("swa_full", c.c_bool),
        ("kv_unified", c.c_bool),
        ("samplers", c.c_void_p),
        ("n_samplers", c.c_size_t),
        ("ctx_other", c.c_void_p),
    ]


class Batch(c.Structure):
    """``struct llama_batch``: parallel arrays of ``n_tokens`` rows."""

    _fields_ = [
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", c.c_void_p),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    ]


class GuideVocabulary(c.Structure):
    """llguidance's ``LlgTokenizerInit``: the pieces of all ids, one after the other."""

    _fields_ = [
        ("vocab_size", c.c_uint32),
        ("eos", c.c_uint32),
        ("lengths", c.POINTER(c.c_uint32)),
        ("pieces", c.c_char_p),
        ("tokenizer_json", c.c_char_p),
        ("tokenize_assumes_string", c.c_bool),
        ("tokenize_fn", c.c_void_p),
        ("tokenize_greedily", c.c_bool),
        ("tokenize_data", c.c_void_p),
        ("slices", c.c_void_p),
    ]


class GuideLimits(c.Structure):
    """llguidance's ``LlgParserLimits``."""

    _fields_ = [
        ("max_items_in_row", c.c_size_t),
        ("initial_lexer_fuel", c.c_uint64),
        ("step_lexer_fuel", c.c_uint64),
        ("step_max_items", c.c_size_t),
        ("max_lexer_states", c.c_size_t),
        ("max_grammar_size", c.c_size_t),
        ("precompute_large_lexemes", c.c_bool),
    ]


class GuideParams(c.Structure):
    """llguidance's ``LlgConstraintInit``."""

    _fields_ = [
        ("tokenizer", c.c_void_p),
        ("log_buffer_level", c.c_uint32),
        ("log_stderr_level", c.c_uint32),
        ("ff_tokens_ok", c.c_bool),
        ("backtrack_ok", c.c_bool),
        ("limits", GuideLimits),
    ]


_IDS = c.POINTER(c.c_int32)
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [c.c_void_p, c.c_void_p]),
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (c.c_void_p, [c.c_char_p, ModelParams]),
    "llama_model_free": (None, [c.c_void_p]),
    "llama_model_get_vocab": (c.c_void_p, [c.c_void_p]),
    "llama_model_n_ctx_train": (c.c_int32, [c.c_void_p]),
    "llama_init_from_model": (c.c_void_p, [c.c_void_p, ContextParams]),
    "llama_free": (None, [c.c_void_p]),
    "llama_get_memory": (c.c_void_p, [c.c_void_p]),
    "llama_memory_clear": (None, [c.c_void_p, c.c_bool]),
    "llama_memory_seq_rm": (c.c_bool, [c.c_void_p, c.c_int32, c.c_int32, c.c_int32]),
    "llama_memory_seq_cp": (None, [c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.c_int32]),
    "llama_memory_seq_pos_max": (c.c_int32, [c.c_void_p, c.c_int32]),
    "llama_batch_init": (Batch, [c.c_int32, c.c_int32, c.c_int32]),
    "llama_batch_free": (None, [Batch]),
    "llama_decode": (c.c_int32, [c.c_void_p, Batch]),
    "llama_get_logits_ith": (c.POINTER(c.c_float), [c.c_void_p, c.c_int32]),
    "llama_get_embeddings_ith": (c.POINTER(c.c_float), [c.c_void_p, c.c_int32]),
    "llama_model_n_embd": (c.c_int32, [c.c_void_p]),
    "llama_vocab_n_tokens": (c.c_int32, [c.c_void_p]),
    "llama_vocab_is_eog": (c.c_bool, [c.c_void_p, c.c_int32]),
    "llama_vocab_eos": (c.c_int32, [c.c_void_p]),
    "llama_vocab_eot": (c.c_int32, [c.c_void_p]),
    "llama_vocab_bos": (c.c_int32, [c.c_void_p]),
    "llama_vocab_pad": (c.c_int32, [c.c_void_p]),
    "llama_vocab_get_attr": (c.c_int32, [c.c_void_p, c.c_int32]),
    "llama_token_to_piece": (c.c_int32, [c.c_void_p, c.c_int32, c.c_char_p, c.c_int32, c.c_int32, c.c_bool]),
    "llama_tokenize": (c.c_int32, [c.c_void_p, c.c_char_p, c.c_int32, _IDS, c.c_int32, c.c_bool, c.c_bool]),
    "llg_new_tokenizer": (c.c_void_p, [c.POINTER(GuideVocabulary), c.c_char_p, c.c_size_t]),
    "llg_free_tokenizer": (None, [c.c_void_p]),
    "llg_constraint_init_set_defaults": (None, [c.POINTER(GuideParams), c.c_void_p]),
    "llg_new_matcher": (c.c_void_p, [c.POINTER(GuideParams), c.c_char_p, c.c_char_p]),
    "llg_clone_matcher": (c.c_void_p, [c.c_void_p]),
    "llg_free_matcher": (None, [c.c_void_p]),
    "llg_matcher_get_error": (c.c_char_p, [c.c_void_p]),
    "llg_matcher_get_mask_byte_size": (c.c_size_t, [c.c_void_p]),
    "llg_matcher_compute_mask_into": (c.c_int32, [c.c_void_p, c.c_void_p, c.c_size_t]),
    "llg_matcher_consume_token": (c.c_int32, [c.c_void_p, c.c_uint32]),
    "llg_matcher_is_stopped": (c.c_bool, [c.c_void_p]),
    "llg_matcher_is_accepting": (c.c_bool, [c.c_void_p]),
}


# llama.cpp's log is of no use to a user of the gateway. The object must outlive the library.
_DISCARD = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)


@functools.cache
def load() -> c.CDLL:
    """Load the library once per process, with all signatures declared.

    Raises:
        RuntimeError: xllamacpp is missing, has another version, or its structs are not the ones declared here.
    """
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the embedded engine needs xllamacpp; {_INSTALL}")
    found = importlib.metadata.version("xllamacpp")
    if found != VERSION:
        raise RuntimeError(f"xllamacpp {found} is installed, but the embedded engine needs {VERSION}; {_INSTALL}")
    objects = sorted(Path(spec.origin).parent.glob("xllamacpp*.so"))
    if not objects:
        raise RuntimeError(f"xllamacpp {found} has no shared library for this platform")
    # OpenMP's threads spin between steps by default, which starves everything else on busy cores. It reads this once.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    library = c.CDLL(str(objects[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_log_set(c.cast(_DISCARD, c.c_void_p), None)
    library.llama_backend_init()
    _check_layout(library)
    return library


def _check_layout(library: c.CDLL) -> None:
    context = library.llama_context_default_params()
    model = library.llama_model_default_params()
    guide = GuideParams()
    library.llg_constraint_init_set_defaults(guide, None)
    expected = (
        (context.n_ctx, 512),
        (context.n_batch, 2048),
        (context.n_ubatch, 512),
        (context.n_seq_max, 1),
        (context.flash_attn_type, -1),
        (context.yarn_ext_factor, -1.0),
        (context.type_k, 1),
        (context.type_v, 1),
        (context.offload_kqv, True),
        (context.n_samplers, 0),
        (context.ctx_other, None),
        (model.vocab_only, False),
        (model.tensor_split, None),
        (guide.log_stderr_level, 1),
        (guide.limits.max_items_in_row, 2000),
        (guide.limits.max_grammar_size, 500_000),
        (guide.limits.precompute_large_lexemes, True),
    )
    if any(value != wanted for value, wanted in expected):
        raise RuntimeError(f"the structs of this llama.cpp are not those of xllamacpp {VERSION}; {_INSTALL}")
