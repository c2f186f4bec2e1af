"""tiktoken and tekken files: the ids of the tiktoken library itself."""

import base64
import codecs
import importlib.util
import json
import random
import unicodedata
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from smg.text.bpe.description import GPT2_SPLIT, KIMI_SPLIT
from smg.text.bpe.probes import PROBES
from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.golden.corpus import SAMPLES, TRAINING
from tests.golden.families import CL100K, family

LLAMA = {"<|begin_of_text|>": 0, "<|end_of_text|>": 1, "<|eom_id|>": 8, "<|eot_id|>": 9}
RUNS = ["a" * 300, " " * 200, "=" * 99, "0" * 50, "\n" * 33, "ab" * 80, "日" * 40, "哈哈" * 9]
TEXTS = [*PROBES, *SAMPLES.values(), *RUNS, "汉字and漢字 mixed 中文's 'S", "한국어'll x１２３４"]
# Without what the special tokens of tekken are spelled like.
PLAIN = [text.replace("<unk>", "") for text in TEXTS]


def ranks() -> dict[bytes, int]:
    """The bytes, then the tokens a small trained vocabulary merges, and runs as real rank files have them."""
    alphabet = {ord(letter): byte for letter, byte in _letters().items()}
    trained = json.loads(family("llama3").to_str())["model"]["vocab"]
    tokens = [bytes(map(alphabet.__getitem__, map(ord, text))) for text in sorted(trained, key=trained.__getitem__)]
    extra = [b"  ", b"aa", b"aaa", b"aaaa", b"   ", b"    ", b"==", "汉字".encode(), "中文".encode()]
    singles = [bytes((byte,)) for byte in range(256)]
    return {token: rank for rank, token in enumerate(dict.fromkeys([*singles, *tokens, *extra]))}


def _letters() -> dict[str, int]:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + at): byte for at, byte in enumerate(hidden)}


def write(directory: Path, name: str, **files: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks().items()]
    (directory / name).write_text("\n".join(lines) + "\n")
    for file, value in files.items():
        (directory / f"{file}.json").write_text(json.dumps(value))
    return directory


def library(pattern: str, specials: dict[str, int]) -> tiktoken.Encoding:
    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks(), special_tokens=specials)


def agree(tokenizer: Tokenizer, oracle: tiktoken.Encoding, text: str) -> None:
    expected = oracle.encode(text, allowed_special="all", disallowed_special=())
    assert tokenizer.encode(text) == expected
    assert tokenizer.decode(expected, skip_special_tokens=False) == oracle.decode(expected)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    first = len(ranks())
    tokenizer = Tokenizer(
        write(tmp_path_factory.mktemp("llama"), "tokenizer.model", config={"model_type": "llama", "eos_token_id": 999})
    )
    return tokenizer, library(CL100K, {text: first + at for text, at in LLAMA.items()})


@pytest.fixture(scope="module")
def kimi(tmp_path_factory):
    first = len(ranks())
    declared = {str(first + 2): {"content": "<|im_end|>", "special": True}}
    config = {"added_tokens_decoder": declared, "auto_map": {"AutoTokenizer": ["tokenization_kimi.X", None]}}
    tokenizer = Tokenizer(write(tmp_path_factory.mktemp("kimi"), "tiktoken.model", tokenizer_config=config))
    specials = {"<|im_end|>": first + 2, f"<|reserved_token_{first}|>": first}
    return tokenizer, library(KIMI_SPLIT, specials)


@pytest.mark.parametrize("text", TEXTS)
def test_llama_and_kimi_encode_like_the_library(llama, kimi, text):
    for model in (llama, kimi):
        agree(*model, text)


@given(text=st.text(max_size=40) | st.text("a =\n哈1'sS汉x", max_size=60))
def test_any_text(llama, kimi, text):
    for model in (llama, kimi):
        agree(*model, text)


def test_special_tokens_spelled_in_a_text(llama, kimi):
    agree(*llama, "<|begin_of_text|>hello<|eot_id|>\n<|eot_id|><|eot_i|>")
    agree(*kimi, "hello<|im_end|> <|reserved_token_1|>x")
    tokenizer, _ = llama
    shielded = tokenizer.shield.protect_text("say <|eot_id|>")
    assert not set(tokenizer.encode(shielded)) & set(tokenizer.literals.values())
    assert tokenizer.decode(tokenizer.encode(shielded)) == "say <|eot_id|>"


def test_what_the_rank_file_does_not_say(llama, kimi):
    tokenizer, _ = llama
    first = len(ranks())
    assert tokenizer.native
    assert (tokenizer.specials.bos, tokenizer.specials.eos) == ("<|begin_of_text|>", "<|eot_id|>")
    assert tokenizer.encode("hello", True)[0] == first
    assert tokenizer.eos_ids == (999,)
    tokenizer, _ = kimi
    assert tokenizer.native
    assert tokenizer.size == first + 256
    assert tokenizer.encode("hello", True) == tokenizer.encode("hello")
    assert tokenizer.token_id("<|im_end|>") == first + 2
    assert tokenizer.decode([first + 2]) == ""


def test_split_ids_that_arrive_one_by_one_are_the_same_text(kimi):
    tokenizer, oracle = kimi
    text = "".join(SAMPLES.values())
    ids = oracle.encode(text, disallowed_special=())
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    assert "".join(decoder.decode(tokenizer.decoder.token_bytes(token)) for token in ids) == text


@pytest.mark.parametrize(
    ("name", "files", "specials"),
    [
        ("qwen.tiktoken", {}, {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<|extra_204|>": 207}),
        (
            "tokenizer.model",
            {"config": {"model_type": "llama4"}},
            {"<|begin_of_text|>": 0, "<|header_start|>": 5, "<|image_start|>": 80, "<|reasoning_thinking_end|>": 1143},
        ),
        ("some.tiktoken", {"tokenizer_config": {"added_tokens_decoder": {"2000": {"content": "<|x|>"}}}}, {}),
    ],
)
def test_families_and_their_special_tokens(tmp_path, name, files, specials):
    tokenizer = Tokenizer(write(tmp_path, name, **files))
    first = len(ranks())
    assert {text: tokenizer.token_id(text) for text in specials} == {text: first + at for text, at in specials.items()}
    if not specials:
        assert tokenizer.token_id("<|x|>") == 2000
        assert tokenizer.encode("a<|x|>") == [*tokenizer.encode("a"), 2000]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    oracle = library(CL100K.replace(r"\p{N}{1,3}", r"\p{N}"), {"<|im_end|>": len(ranks()) + 2})
    return Tokenizer(write(tmp_path_factory.mktemp("qwen"), "qwen.tiktoken")), oracle


@pytest.mark.parametrize("text", [*TEXTS, "e\u0301 a\u0323\u0302", "\u2001\u212b\uf94a<|im_end|>e\u0301"])
def test_qwen_encodes_texts_in_normal_form_c_as_its_own_tokenizer_does(qwen, text):
    tokenizer, oracle = qwen
    expected = oracle.encode(unicodedata.normalize("NFC", text), allowed_special="all", disallowed_special=())
    assert tokenizer.native
    assert tokenizer.encode(text) == expected


def test_gpt_oss_has_its_ids_whatever_its_ranks(tmp_path):
    tokenizer = Tokenizer(write(tmp_path, "o200k_base.tiktoken"))
    expected = {"<|start|>": 200006, "<|return|>": 200002, "<|call|>": 200012, "<|reserved_201087|>": 201087}
    assert {text: tokenizer.token_id(text) for text in expected} == expected
    assert tokenizer.eos_ids == (200002, 200012)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cl100k_base.tiktoken", {"<|endoftext|>": 100257, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}),
        ("r50k_base.tiktoken", {"<|endoftext|>": 50256}),
        ("p50k_base.tiktoken", {"<|endoftext|>": 50256}),
    ],
)
def test_FIX_1_1_rank_files_of_openai_are_told_by_their_name(tmp_path, name, expected):
    tokenizer = Tokenizer(write(tmp_path, name))
    assert {text: tokenizer.token_id(text) for text in expected} == expected
    assert tokenizer.eos_ids == (expected["<|endoftext|>"],)
    assert tokenizer.native
    oracle = library(CL100K if name.startswith("cl") else GPT2_SPLIT, expected)
    for text in TEXTS:
        agree(tokenizer, oracle, text)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"YQ== 0\nYg== x\n", "no tiktoken rank file"), (b"YQ== 0\n", "every byte"), (b"YQ== 0\n!! 1\n", "no tiktoken")],
)
def test_broken_rank_files_say_what_is_wrong(tmp_path, content, message):
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer(tmp_path)


def tekken(directory: Path, used: int, specials: list[dict[str, object]] | None) -> Path:
    """Rank 20 special tokens below ``used`` tokens of text."""
    pattern = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in ranks().items()
    ]
    config = {"pattern": pattern, "default_vocab_size": used + 30, "default_num_special_tokens": 30, "version": "v3"}
    file = {"config": config, "vocab": vocab} | ({} if specials is None else {"special_tokens": specials})
    directory.mkdir(exist_ok=True)
    (directory / "tekken.json").write_text(json.dumps(file))
    return directory


def test_tekken_shifts_ids_behind_the_special_tokens_and_uses_a_part_of_the_vocabulary(tmp_path):
    used = len(ranks()) - 5
    tokenizer = Tokenizer(tekken(tmp_path, used, None))
    kept = {token: rank for token, rank in ranks().items() if rank < used}
    oracle = tiktoken.Encoding("t", pat_str=CL100K.replace("{1,3}", ""), mergeable_ranks=kept, special_tokens={})
    for text in PLAIN:
        expected = [token + 30 for token in oracle.encode(text, disallowed_special=())]
        assert tokenizer.encode(text) == expected
        assert tokenizer.decode(expected) == text
    assert tokenizer.size == used + 30
    assert tokenizer.encode("[INST]a</s>", True) == [1, 3, ranks()[b"a"] + 30, 2]
    assert tokenizer.token_id("<SPECIAL_29>") == 29
    assert tokenizer.eos_ids == (2,)


def test_tekken_names_its_special_tokens_itself_since_version_7(tmp_path):
    specials = [{"rank": 0, "token_str": "<s>", "is_control": True}, {"rank": 1, "token_str": "[THINK]"}]
    tokenizer = Tokenizer(tekken(tmp_path, len(ranks()), specials))
    assert [tokenizer.token_id(text) for text in ("<s>", "[THINK]", "<SPECIAL_2>")] == [0, 1, 2]


def published(name: str) -> Path:
    """A file of the package mistral-common, of which nothing is imported."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package mistral-common, which has the real files, is not installed")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def test_a_published_tekken_file(tmp_path):
    source = published("tekken_240911.json")
    (tmp_path / "tekken.json").symlink_to(source)
    file = json.loads(source.read_bytes())
    config = file["config"]
    shift = config["default_num_special_tokens"]
    kept = file["vocab"][: config["default_vocab_size"] - shift]
    oracle = tiktoken.Encoding(
        "tekken",
        pat_str=config["pattern"],
        mergeable_ranks={base64.b64decode(token["token_bytes"]): token["rank"] for token in kept},
        special_tokens={},
    )
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.native
    random_ = random.Random(7)
    words = " ".join(PLAIN + TRAINING).split(" ")
    for text in [*PLAIN, *(" ".join(random_.choices(words, k=30)) for _ in range(100))]:
        expected = [token + shift for token in oracle.encode(text, disallowed_special=())]
        assert tokenizer.encode(text) == expected
        assert tokenizer.decode(expected) == text
