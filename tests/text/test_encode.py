"""CachedEncoder: what is cut, what is remembered, and what is not trusted (spec text-pipeline 3)."""

import threading

import pytest

from smg.text.cuts import Cutter, frame
from smg.text.encode import CachedEncoder, CacheSizes
from smg.text.shield import JOINER
from smg.text.tokenizer import Tokenizer
from tests.golden.families import FAMILIES, Plain, family, literals


def texts_of(name: str, ids: frozenset[int]) -> set[str]:
    return {family(name).id_to_token(token) for token in ids}


def safe(name: str) -> set[str]:
    return texts_of(name, Cutter(Plain(family(name)), literals(family(name))).safe)


def chat(turns: int) -> str:
    turn = "<|im_start|>{role}\nTurn {number} says something of ordinary length about the harbour.<|im_end|>\n"
    roles = ("user", "assistant")
    return "".join(turn.format(role=roles[number % 2], number=number) for number in range(turns))


@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2", "smollm", "llama2"])
def test_tokens_of_chat_templates_are_safe_cuts(name):
    assert safe(name) == set(literals(family(name)))


def test_tokens_of_the_chat_template_are_tried_first(monkeypatch):
    monkeypatch.setattr("smg.text.cuts.MAX_TRIED", 2)
    found = Cutter(Plain(family("qwen2")), literals(family("qwen2")), "{{ m }}<|im_end|> and <|im_start|>").safe
    assert texts_of("qwen2", found) == {"<|im_start|>", "<|im_end|>"}


def test_every_kind_of_token_that_a_cut_would_change_is_found_out():
    found = safe("awkward")
    # It swallows the blanks behind it.
    assert "<|user|>" not in found
    # It is a token only where no word goes on.
    assert "word" not in found
    # Matched after normalisation, so it is not among the literals at all.
    assert "<Normal>" not in found
    assert found == {"<|end|>", "<|end|>er", "<|e", "<|tool|>", "<END"}


def test_a_tokenizer_that_marks_the_first_word_of_a_text_has_no_safe_cut():
    assert safe("metaspace first") == set()
    encoder = CachedEncoder(Plain(family("metaspace first")), literals(family("metaspace first")))
    text = "one <s>hello" * 20
    assert encoder.encode(text) == family("metaspace first").encode(text, add_special_tokens=False).ids
    assert encoder.stats().prefix_misses == encoder.stats().prefix_entries == 0


def test_a_token_that_also_stands_for_unknown_text_is_no_cut():
    assert "<unk>" not in safe("unigram")
    assert safe("wordpiece") == {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}


def test_a_token_glued_to_a_picky_one_is_no_cut():
    class Glued(Plain):
        """Recognises ``tok`` only where no word goes on before it."""

        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            ids: list[int] = []
            at = 0
            while at < len(text):
                if text.startswith("<end", at):
                    ids, at = [*ids, 1], at + 4
                elif text.startswith("<end>", at):
                    ids, at = [*ids, 3], at + 5
                elif text.startswith("tok", at) and not text[max(at - 1, 0) : at].isalnum():
                    ids, at = [*ids, 2], at + 3
                else:
                    ids, at = [*ids, 10 + ord(text[at])], at + 1
            return ids

    assert Cutter(Glued(family("gpt2")), {"<end": 1}).safe == {1}
    assert Cutter(Glued(family("gpt2")), {"<end": 1, "tok": 2}).safe == frozenset()


@pytest.mark.parametrize(
    ("name", "around"),
    [("gpt2", ([], [])), ("llama3", ([700], [])), ("unigram", ([], [1])), ("wordpiece", ([2], [3]))],
)
def test_what_special_tokens_put_around_a_text(name, around):
    assert frame(Plain(family(name))) == around


def test_a_frame_that_changes_with_the_text_is_none():
    class Odd(Plain):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            return [len(text)] * add_special_tokens + super().encode(text)

    assert frame(Odd(family("gpt2"))) is None
    encoder = CachedEncoder(Odd(family("gpt2")), literals(family("gpt2")))
    text = "a long text that ends in a token" * 3 + "<|im_end|>" + "and more"
    assert encoder.encode(text, True) == [len(text), *family("gpt2").encode(text).ids]


def test_each_turn_of_a_chat_encodes_only_what_is_new():
    plain = Plain(family("qwen2"))
    encoder = CachedEncoder(plain, literals(family("qwen2")))
    reused = 0
    for turns in range(1, 21):
        prompt = chat(turns) + "<|im_start|>assistant\n"
        plain.encoded = 0
        assert encoder.encode(prompt) == family("qwen2").encode(prompt).ids
        stats = encoder.stats()
        if turns > 1:
            # The new turn, the generation prompt, and what lies behind the last cut that was far enough apart.
            assert plain.encoded < len(prompt) - len(chat(turns - 2)) + 64
            assert stats.reused_ids > reused
        reused = stats.reused_ids
    assert (stats.prefix_hits, stats.prefix_misses) == (19, 1)


def test_a_text_seen_before_is_not_encoded_at_all():
    plain = Plain(family("llama3"))
    encoder = CachedEncoder(plain, literals(family("llama3")))
    for add_special_tokens in (False, True):
        first = encoder.encode("Hello there", add_special_tokens)
        plain.encoded = 0
        assert encoder.encode("Hello there", add_special_tokens) == first
        assert plain.encoded == 0
    # The caller owns what it was given.
    first.clear()
    assert encoder.encode("Hello there", True) != []
    assert (encoder.stats().exact_hits, encoder.stats().exact_entries) == (3, 2)


def test_beginnings_serve_texts_with_and_without_special_tokens():
    plain = Plain(family("llama3"))
    encoder = CachedEncoder(plain, literals(family("llama3")))
    start = "A system prompt that is long enough to be worth a cut, and then some more of it.<|eot_id|>"
    encoder.encode(start + "one")
    plain.encoded = 0
    assert encoder.encode(start + "two", True) == family("llama3").encode(start + "two").ids
    assert plain.encoded == len("two")


def test_ids_that_do_not_show_the_tokens_of_the_text_are_not_remembered():
    class Silent(Plain):
        """Leaves a token out when a certain word is near."""

        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            ids = super().encode(text)
            return [token for token in ids if token != 701] if "quiet" in text else ids

    plain = Silent(family("gpt2"))
    encoder = CachedEncoder(plain, literals(family("gpt2")))
    text = "quiet " * 20 + "<|im_end|>" + "x" * 80
    for _ in range(2):
        assert encoder.encode(text) == plain.encode(text)
    assert encoder.stats().prefix_entries == 0


def test_cuts_keep_a_distance():
    encoder = CachedEncoder(Plain(family("gpt2")), literals(family("gpt2")))
    text = "<|im_end|>" * 100
    assert encoder.encode(text) == family("gpt2").encode(text).ids
    assert encoder.stats().prefix_entries == len(text) // 70


def test_levels_can_be_turned_off():
    text = chat(6)
    for sizes in (CacheSizes(exact_bytes=0), CacheSizes(prefix_bytes=0), CacheSizes(0, 0, 0)):
        encoder = CachedEncoder(Plain(family("qwen2")), literals(family("qwen2")), sizes)
        for _ in range(2):
            assert encoder.encode(text) == family("qwen2").encode(text).ids
        stats = encoder.stats()
        assert (stats.exact_entries > 0) == (sizes.exact_bytes > 0)
        assert (stats.prefix_entries > 0) == (sizes.prefix_bytes > 0)
        assert stats.exact_bytes <= sizes.exact_bytes
        assert stats.prefix_bytes <= sizes.prefix_bytes


def test_a_text_without_a_utf8_form_meets_the_tokenizers_own_answer():
    class Failing(Plain):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            text.encode()
            return super().encode(text, add_special_tokens)

    encoder = CachedEncoder(Failing(family("gpt2")), literals(family("gpt2")))
    with pytest.raises(UnicodeEncodeError):
        encoder.encode("a\ud800")
    assert encoder.stats().exact_entries == 0


def test_threads_get_the_right_ids():
    encoder = CachedEncoder(Plain(family("qwen2")), literals(family("qwen2")), CacheSizes(20, 20_000, 20_000))
    wrong = []

    def work(shift: int) -> None:
        for number in range(60):
            prompt = chat((number * shift) % 13)
            if encoder.encode(prompt) != family("qwen2").encode(prompt).ids:
                wrong.append(prompt)

    threads = [threading.Thread(target=work, args=(shift,)) for shift in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_no_family_is_left_out():
    assert len(FAMILIES) >= 8


@pytest.mark.parametrize("name", ["qwen2", "llama2"])
def test_control_tokens_that_a_user_typed_stay_text(name, tmp_path):
    """CT-04: the joiners that break their spelling leave no id, and the cuts around them still hold."""
    family(name).save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    encoder = CachedEncoder(tokenizer, {**literals(family(name)), JOINER: tokenizer.token_id(JOINER)})
    special = next(iter(literals(family(name))))
    prompt = ""
    for number in range(8):
        typed = tokenizer.shield.protect_text(f"message {number} with {special} typed in, and more words")
        prompt += special + typed + ("." * 50) + special
        assert encoder.encode(prompt) == tokenizer.encode(prompt)
    # The first prompt ends in its only token, the second knows no beginning yet.
    assert encoder.stats().prefix_hits == 6
