"""Files that are damaged, old or of something else are noticed, and nobody ever sees half of one."""

import os
import random
import struct
import time
from pathlib import Path

import msgspec
import pytest

from smg.text.mapped import file as layout
from smg.text.mapped.file import Unusable, read, write
from smg.text.mapped.folder import REMAINS_SECS, UNUSED_SECS, Folder, folder_of
from smg.text.mapped.make import prepare
from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.text.makers import byte_level_json, chat_model, write_model
from tests.text.mapped.models import KEY


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def made(model):
    return prepare(model, KEY)


@pytest.fixture(scope="module")
def good(tmp_path_factory, made) -> bytes:
    path = tmp_path_factory.mktemp("good") / "file"
    write(path, made.head, made.sections)
    return path.read_bytes()


def refused(path: Path, data: bytes) -> str:
    """Why a file of this content is not used."""
    path.write_bytes(data)
    with pytest.raises(Unusable) as caught:
        read(path, KEY)
    return str(caught.value)


def sealed(data: bytes) -> bytes:
    """``data`` with the digest that it should have."""
    whole = layout.hashlib.blake2b(data[:32], digest_size=32)
    whole.update(data[64:])
    return data[:32] + whole.digest() + data[64:]


def test_any_truncation_is_noticed(tmp_path, good):
    rng = random.Random(1)
    for size in [*range(70), *(rng.randrange(len(good)) for _ in range(60)), len(good) - 1]:
        assert refused(tmp_path / "file", good[:size])
    assert refused(tmp_path / "file", good + b"\0")


def test_any_flipped_bit_is_noticed(tmp_path, good):
    rng = random.Random(2)
    for at in [*range(64), *(rng.randrange(64, len(good)) for _ in range(60))]:
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        if 24 <= at < 32:
            assert refused(tmp_path / "file", bytes(bad)) == "its digest is wrong"
        assert refused(tmp_path / "file", bytes(bad))


def test_what_has_a_right_digest_is_still_not_believed(tmp_path, good, model):
    """Damage to the head and to the beginnings of the sections, sealed anew: refused, or a tokenizer that works."""
    rng = random.Random(3)
    places = [
        *range(64, 2000),
        *(good.index(magic) + at for magic in (b"SMGBPE01", b"SMGWORD1", b"SMGVOCB1") for at in range(40)),
    ]
    for _ in range(400):
        bad = bytearray(good)
        bad[rng.choice(places)] = rng.randrange(256)
        (tmp_path / "file").write_bytes(sealed(bytes(bad)))
        try:
            tokenizer = Tokenizer(model, read(tmp_path / "file", KEY))
        except (Unusable, TokenizerError):
            continue
        assert tokenizer.encode("hello world")
        assert tokenizer.decode([1, 2, 3]) is not None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": "0" * 16}, "another version"),
        ({"key": "66" * 32}, "something else"),
        ({"decoder_error": "CTC"}, None),
        ({"added": [("x", -5)] * 3}, None),
    ],
)
def test_heads_of_other_files(tmp_path, made, changes, why):
    write(tmp_path / "file", msgspec.structs.replace(made.head, **changes), made.sections)
    if why is None:
        assert read(tmp_path / "file", KEY).tables
    else:
        with pytest.raises(Unusable, match=why):
            read(tmp_path / "file", KEY)


@pytest.mark.parametrize(
    "facts", [{"size": 5}, {"literals": {"a": 1 << 40}}, {"literals": {"a": -1}}, {"joiner": 1 << 40}]
)
def test_facts_that_do_not_fit_the_tables(tmp_path, made, facts):
    head = msgspec.structs.replace(made.head, facts=msgspec.structs.replace(made.head.facts, **facts))
    write(tmp_path / "file", head, made.sections)
    with pytest.raises(Unusable, match="damaged"):
        read(tmp_path / "file", KEY)


@pytest.mark.parametrize("missing", ["encoder", "ids", "vocab"])
def test_sections_that_are_missing(tmp_path, made, missing):
    write(tmp_path / "file", made.head, {name: data for name, data in made.sections.items() if name != missing})
    with pytest.raises(Unusable, match="damaged"):
        read(tmp_path / "file", KEY)


def test_a_section_beyond_the_end(tmp_path, made, good, monkeypatch):
    real = layout._pack
    far = {"encoder": (1 << 40, 10)}
    monkeypatch.setattr(layout, "_pack", lambda head: real(msgspec.structs.replace(head, sections=far)))
    write(tmp_path / "file", made.head, made.sections)
    with pytest.raises(Unusable, match="outside"):
        read(tmp_path / "file", KEY)


@pytest.mark.parametrize("kind", ["missing", "directory", "empty"])
def test_what_is_no_file(tmp_path, kind):
    path = tmp_path / "file"
    if kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    with pytest.raises(Unusable):
        read(path, KEY)


def test_a_head_that_claims_to_be_larger_than_the_file(tmp_path, good):
    bad = good[:8] + struct.pack("=Q", 2**62) + good[16:]
    assert "cut off" in refused(tmp_path / "file", sealed(bad))


def test_writing_that_fails_leaves_nothing(tmp_path, made, monkeypatch):
    (tmp_path / "file").write_bytes(b"before")

    def full(old, new):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(layout.os, "rename", full)
        with pytest.raises(OSError, match="no space left"):
            write(tmp_path / "file", made.head, made.sections)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"before")]
    write(tmp_path / "file", made.head, made.sections)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert read(tmp_path / "file", KEY).tables


def test_configurations_come_back_as_they_were(tmp_path):
    """With numbers that few formats can hold, as real ones have them."""
    config = {
        "model_max_length": 1000000000000000019884624838656,
        "x": ["\ud800", None, 1.5],
        "chat_template": "{{ x }}",
    }
    model = write_model(tmp_path / "m", byte_level_json(), tokenizer_config=config, config={"scale": float("inf")})
    made = prepare(model, KEY)
    write(tmp_path / "file", made.head, made.sections)
    mapped = Tokenizer(model, read(tmp_path / "file", KEY))
    assert (mapped.config, mapped.model_config) == (config, {"scale": float("inf")})


def test_a_file_stays_mapped_when_it_is_replaced_or_removed(tmp_path, made, model):
    path = tmp_path / "file"
    write(path, made.head, made.sections)
    tokenizer = Tokenizer(model, read(path, KEY))
    write(path, made.head, {})
    path.unlink()
    assert tokenizer.decode(tokenizer.encode("hello world")) == "hello world"


def test_a_folder_opens_what_is_sound_and_says_what_is_not(tmp_path, made, good, caplog):
    folder = folder_of(str(tmp_path))
    assert folder.path == tmp_path / "tokenizers" / "prepared"
    folder.path.mkdir(parents=True)
    assert folder.open(KEY) is None
    assert not caplog.records
    folder.file(KEY).write_bytes(good[:-5])
    assert folder.open(KEY) is None
    assert "cannot be used" in caplog.text
    folder.file(KEY).write_bytes(good)
    assert folder.open(KEY).tables


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "/models/x", "K" * 64])
def test_a_key_that_is_no_digest_stays_in_the_folder(tmp_path, key):
    assert Folder(tmp_path).file(key).parent == tmp_path


def test_what_nobody_has_used_for_long_is_removed(tmp_path, good):
    folder = Folder(tmp_path)
    old = time.time() - UNUSED_SECS - 60
    for key in (KEY, "00" * 32):
        folder.file(key).write_bytes(good)
        os.utime(folder.file(key), (old, old))
    other = tmp_path / "another version.tokenizer"
    making, remains = tmp_path / ".making-1", tmp_path / ".making-2"
    for path in (other, making, remains):
        path.touch()
    os.utime(remains, (time.time() - REMAINS_SECS - 60,) * 2)
    assert folder.open(KEY)  # which counts as use
    folder.clean()
    assert {path.name for path in tmp_path.iterdir()} == {folder.file(KEY).name, other.name, making.name}
    Folder(tmp_path / "nowhere").clean()
