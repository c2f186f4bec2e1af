"""Published test vectors (spec routing 1.5, 1.6, 2.3), and one value for each way the functions treat a length."""

import struct

import pytest

from smg._native.hashes import blake3_64, xxh3_64
from smg._native.prefix_keys import SEED, block_hash, chain_hash


def tokens(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


@pytest.mark.parametrize(
    ("ids", "value"),
    [
        ([], 0xD1F3E77444430AB9),
        ([1], 0xC8355DA0879E060D),
        ([1, 2, 3, 4], 0xCB38E4D7FB2DCA5C),
        ([5, 6, 7, 8], 0xE8D3EC39B907B74C),
        (range(16), 0xD47A8F41C833328A),
        (range(16, 32), 0xD43939178ABD00DB),
    ],
)
def test_content_hash_of_a_block(ids, value):
    assert block_hash(list(ids)) == value
    assert xxh3_64(tokens(*ids), SEED) == value


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8], 0x44A2B2379D6D3C3D),
        (range(16), range(16, 32), 0xBF15DFFB16447F38),
    ],
)
def test_prefix_hash_of_two_blocks(first, second, value):
    assert chain_hash(block_hash(list(first)), block_hash(list(second))) == value


def test_hash_of_the_first_256_tokens():
    assert xxh3_64(tokens(*range(256))) == 0xD12BA3BA3964C7ED


@pytest.mark.parametrize(
    ("length", "plain", "seeded"),
    [
        (0, 0x2D06800538D394C2, 0xD1F3E77444430AB9),
        (1, 0x13E608BC156DEFED, 0x8BA861933D16D569),
        (3, 0xA9088DDA485B481C, 0x18D3061965E0FBF4),
        (4, 0x6D9253B16C8B1ED3, 0x490D90AA21410DAA),
        (8, 0x60539DB630471163, 0x6AF2E794DBFF7C31),
        (9, 0xFEFF668361D723A8, 0xC7603D83CEBEB759),
        (16, 0xB8C859B0F030B585, 0x931D8DF5541F495F),
        (17, 0x714A04408E79B80F, 0xA0BD56D7478A3245),
        (64, 0x287EB1FA9E4BE2C1, 0x4B8EA7EA74E43077),
        (65, 0x829218DE4D798646, 0x1995F72D79D94017),
        (96, 0xF084E7CFBC624743, 0x1E8AD1791B433857),
        (97, 0x1DAA83271A8E7B7C, 0x2FB1FCFABE3B8232),
        (128, 0x67425A03650261BF, 0x4E9B58DF05538A85),
        (129, 0xC664BF3311C6ABC4, 0x1413F3D544B3C4D7),
        (160, 0xD70DEA8DE694B883, 0xAF3E1AF3FE4BC7C8),
        (240, 0x64556DC6B462A6CF, 0xA5644B60A1EBB3BD),
        (241, 0x8BEADD3A8874FE17, 0x47929767C2A5B46D),
        (1024, 0x9B81661C641C72B1, 0x76B68475E15430AE),
        (1025, 0x806C2072ED713576, 0x6815D5AB3BAD69CB),
        (3000, 0xC89178BB873C6B3D, 0x1BAE92776942850C),
    ],
)
def test_xxh3_at_every_length_class(length, plain, seeded):
    data = bytes((i * 7 + 3) % 256 for i in range(length))
    assert (xxh3_64(data), xxh3_64(data, SEED)) == (plain, seeded)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"user-123", 0x54B3E313138ADB57),
        (b"http://w1:8000#0", 0x05893F24461A2751),
        (b"http://w1:8000#149", 0x9301EE719453D575),
    ],
)
def test_blake3_of_keys_and_ring_positions(text, value):
    assert blake3_64(text) == value


@pytest.mark.parametrize(
    ("length", "value"),
    [
        (0, 0xA6A1F9F5B94913AF),
        (1, 0x0C9BA36E1DE8E0E1),
        (63, 0x43E38B7097B74FD2),
        (64, 0xE2A478A1B6473EB8),
        (65, 0xF5FFE3CC498B0703),
        (1023, 0x097CAEFCB1942156),
        (1024, 0x5866993A439B291D),
        (1025, 0x6778167A9453BA23),
        (2048, 0xCF97C8CEC5B67F10),
        (2049, 0x060406AA217FCE9C),
        (3072, 0x337811EB7F4884BE),
        (5000, 0x4A07ECD27F9B13DF),
        (10000, 0x5520AAEA025BD58B),
    ],
)
def test_blake3_of_blocks_chunks_and_trees(length, value):
    assert blake3_64(bytes((i * 7 + 3) % 251 for i in range(length))) == value
