"""Ids of reasoning are counted by the family's markers, however the engine's messages cut them."""

import random

import pytest

from smg.core.request import Tool
from smg.parsing.base import Start
from smg.parsing.reasoning.counting import counter
from smg.parsing.table import REASONING
from tests.parsing.runs import row

# Every text that is a token here has its place as its id; all else is id 1000.
TOKENS = [
    *("<think>", "</think>", "<tool_call>", "<|content_thinking|>", "<|content_text|>", "<|end_message|>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "analysis"),
]
IDS = {text: number for number, text in enumerate(TOKENS)}


def count(name, text, start=None):
    """The ids of reasoning in words that stand for tokens."""
    ids = [IDS.get(word, 1000) for word in text.split()]
    found = set()
    generator = random.Random(1)
    for _ in range(20):
        made = counter(row(REASONING, name), start or Start(), IDS.get)
        assert made is not None
        at = 0
        while at < len(ids):
            size = generator.randint(1, 4)
            made.take(ids[at : at + size])
            at += size
        found.add(made.count)
    [same] = found
    return same


INSIDE = Start(prompt_tail="<think>\n")


@pytest.mark.parametrize(
    ("name", "text", "start", "expected"),
    [
        ("qwen3", "<think> a b c </think> d e", None, 3),
        ("qwen3", "a b c", None, 0),
        ("qwen3", "a b </think> c <think> d </think> e", INSIDE, 3),
        ("qwen3", "a b <tool_call> c", Start(prompt_tail="<think>", tools=(Tool("f"),)), 2),
        ("qwen3", "a b <tool_call> c", INSIDE, 4),
        ("qwen3", "b </think> c", Start(history="<think>a"), 1),
        ("qwen3", "b c", Start(history="<think>a</think>"), 0),
        ("deepseek_r1", "a b </think> c", None, 2),
        ("inkling", "<|content_thinking|> a b <|end_message|> <|content_text|> c", None, 2),
        (
            "gpt_oss",
            "<|channel|> analysis <|message|> a b <|end|> <|start|> x <|channel|> f <|message|> analysis <|return|>",
            None,
            2,
        ),
        ("gpt_oss", "<|channel|> final <|message|> a", None, 0),
    ],
)
def test_ids_between_markers(name, text, start, expected):
    assert count(name, text, start) == expected


@pytest.mark.parametrize("name", ["granite", "kimi_k3", "apriel", "passthrough", "muse_glimmer", "kimi"])
def test_markers_of_several_tokens_are_not_told_by_ids(name):
    assert counter(row(REASONING, name), Start(), IDS.get) is None


def in_text(name, tokens, start=None):
    """The ids of reasoning among ``tokens``, which are their texts."""
    found = set()
    generator = random.Random(1)
    for size in (1, 3, len(tokens), None):
        made = counter(row(REASONING, name), start or Start(), lambda text: None, lambda token: tokens[token])
        assert made is not None
        at = 0
        while at < len(tokens):
            step = size or generator.randint(1, 4)
            made.take(range(len(tokens))[at : at + step])
            at += step
        found.add(made.count)
    [same] = found
    return same


def bytes_of(text):
    """One token for each character between bars."""
    return [piece.encode() for piece in text.split("|")]


@pytest.mark.parametrize(
    ("name", "text", "start", "expected"),
    [
        ("granite", "Here| is| my| thought| process|:| I| add|.|Here| is| my| response|:| 4", None, 3),
        ("kimi", "◁|think|▷|a|b|◁/|think▷|c", None, 2),
        ("kimi", "think|ing", None, 0),
        ("apriel", "a|b|c|[BEGIN| FINAL| RESPONSE|]|d", None, 3),
        ("apriel", "a|b", None, 2),
        ("apriel", "b|[BEGIN FINAL RESPONSE]|c", Start(history="a"), 1),
        ("qwen3", "<|think|>|a|b|</|think|>|think", None, 2),
        # What has begun like a marker and is none belongs to the reasoning.
        ("qwen3", "<think>|a|</|b|</think>|c", None, 3),
        ("minimax_m3", "<mm:|think>|I| think|</mm:|think>|so", None, 2),
    ],
)
def test_tokens_whose_text_is_reasoning(name, text, start, expected):
    assert in_text(name, bytes_of(text), start) == expected


def test_characters_of_several_tokens():
    smile = "😀".encode()
    tokens = [b"<think", b">", smile[:2], smile[2:], b"\xff", b"</think", b">", smile[:2], smile[2:]]
    assert in_text("qwen3", tokens) == 3


def test_a_family_that_takes_nothing_apart_counts_nothing():
    for name in ("minimax_append", "passthrough"):
        assert counter(row(REASONING, name), Start(), IDS.get, lambda token: b"a") is None
