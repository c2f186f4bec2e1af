"""A GGUF with expanded weights: the same model, kept once, and never in the way."""

import os
import threading

import gguf
import numpy as np
import pytest

from smg.engine_server.llama import default_model, gguf_metadata, weights
from smg.engine_server.llama.model import Model, Piece
from smg.engine_server.llama.weights import expanded


@pytest.fixture
def small(tmp_path):
    """A GGUF with a quantised matrix, an 8-bit one, floats, and metadata of several types."""
    path = tmp_path / "small.gguf"
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(3)
    writer.add_array("words", ["a", "é"])
    writer.add_tensor("norm", np.arange(5, dtype=np.float32))
    for name, kind in (
        ("matrix", gguf.GGMLQuantizationType.Q4_1),
        ("wide", gguf.GGMLQuantizationType.Q8_0),
        ("last", gguf.GGMLQuantizationType.Q4_1),
    ):
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def values_of(path):
    return {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize(("kind", "type_name", "error"), [("f16", "F16", 1e-3), ("q8", "Q8_0", 0.02)])
def test_only_small_weights_are_expanded_and_mean_the_same(small, tmp_path, kind, type_name, error):
    lines = []
    path = expanded(small, kind, tmp_path / "state" / "weights", lines.append)
    reader = gguf.GGUFReader(path)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert types == {"norm": "F32", "matrix": type_name, "wide": "Q8_0", "last": type_name}
    for name, values in values_of(small).items():
        assert values_of(path)[name] == pytest.approx(values, abs=error)
    metadata = gguf_metadata.read(path)
    assert metadata == gguf_metadata.read(small) | {"general.file_type": {"f16": 1, "q8": 7}[kind]}
    assert "once" in lines[0]


def test_the_copy_is_made_once_for_a_content(small, tmp_path):
    lines = []
    first = expanded(small, "f16", tmp_path / "w", lines.append)
    assert len(lines) == 2
    assert expanded(small, "f16", tmp_path / "w", lines.append) == first
    assert len(lines) == 2
    small.write_bytes(small.read_bytes()[:-1] + b"x")
    assert expanded(small, "f16", tmp_path / "w", lines.append) != first
    assert sorted(os.listdir(tmp_path / "w")) == sorted(
        [first.name, expanded(small, "f16", tmp_path / "w", lines.append).name]
    )


def test_engines_that_start_together_make_one_copy(small, tmp_path):
    lines = []
    threads = [threading.Thread(target=expanded, args=(small, "f16", tmp_path / "w", lines.append)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines) == 2
    assert len(os.listdir(tmp_path / "w")) == 1


def test_a_model_without_small_weights_serves_as_it_is(small, tmp_path):
    wide = expanded(small, "q8", tmp_path / "w", lambda line: None)
    assert expanded(wide, "f16", tmp_path / "w2", lambda line: None) == wide
    assert os.listdir(tmp_path / "w2") == []
    assert expanded(small, "file", tmp_path / "w3", lambda line: None) == small


def test_a_copy_that_fails_is_told_and_leaves_nothing(small, tmp_path, monkeypatch):
    lines = []
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    assert expanded(small, "f16", blocked / "weights", lines.append) == small
    assert "stay as they are" in lines[-1]

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights, "_convert", full)
    assert expanded(small, "f16", tmp_path / "w", lines.append) == small
    assert lines[-1] == "the weights stay as they are: No space left on device"
    assert os.listdir(tmp_path / "w") == []


@pytest.fixture(scope="module")
def float_model(tmp_path_factory):
    path = expanded(default_model(), "f16", tmp_path_factory.mktemp("weights"), lambda line: None)
    model = Model(path, slots=4, context_length=128)
    yield model
    model.close()


PROMPTS = [[100 + slot, *range(200, 222 + slot)] for slot in range(4)]


def test_float_weights_give_the_same_logits_alone_and_in_any_batch(float_model):
    model = float_model
    alone, after = [], []
    for prompt in PROMPTS:
        alone.append(model.step([Piece(0, prompt, 0, 1)])[0][0].copy())
        after.append(model.step([Piece(0, [7], len(prompt), 1)])[0][0].copy())
        model.trim(0, 0)
    for chunk in (1, 2, 21):
        for start in range(0, len(PROMPTS[0]), chunk):
            piece = PROMPTS[0][start : start + chunk]
            rows = model.step([Piece(2, piece, start, int(start + chunk >= len(PROMPTS[0])))])
        assert np.array_equal(rows[2][0], alone[0])
        model.trim(2, 0)
    rows = model.step([Piece(slot, prompt, 0, 1) for slot, prompt in enumerate(PROMPTS)])
    assert all(np.array_equal(rows[slot][0], alone[slot]) for slot in range(4))
    for together in ([0, 1, 2, 3], [1], [0, 2], [0, 1, 3]):
        rows = model.step([Piece(slot, [7], len(PROMPTS[slot]), 1) for slot in together])
        assert all(np.array_equal(rows[slot][0], after[slot]) for slot in together)
        for slot in together:
            model.trim(slot, len(PROMPTS[slot]))
    mixed = [Piece(0, [7], len(PROMPTS[0]), 1), Piece(3, PROMPTS[3], 0, len(PROMPTS[3]))]
    model.trim(3, 0)
    rows = model.step(mixed)
    assert np.array_equal(rows[0][0], after[0])
    assert np.array_equal(rows[3][-1], alone[3])
    for slot in range(4):
        model.trim(slot, 0)
