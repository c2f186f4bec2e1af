"""What a model says before its answer, by reasoning format and prompt (spec text-pipeline 2.5)."""

import pytest

from smg.constraints.lead import Lead, lead
from smg.parsing.base import Start
from smg.parsing.table import REASONING
from tests.parsing.runs import row

THINK = Lead("</think>")


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        ("qwen3", Start("<think>\n"), THINK),
        ("qwen3", Start("assistant\n", thinking=True), Lead("</think>", "<think>")),
        ("qwen3", Start("assistant\n", thinking=False), None),
        ("qwen3", Start("assistant\n"), None),
        ("qwen3", Start("<think>\n\n</think>\n\n", thinking=True), None),
        ("deepseek_r1", Start("assistant\n"), THINK),
        ("deepseek_r1", Start("assistant\n", thinking=False), None),
        ("deepseek_r1", Start("</think>"), None),
        ("mistral", Start("[THINK]"), Lead("[/THINK]")),
        ("mistral", Start("<think>\n"), THINK),
        ("hunyuan_a13b", Start("<think>\n"), THINK),
        ("apriel", Start("x"), Lead("[BEGIN FINAL RESPONSE]")),
        ("kimi_k3", Start("<|open|>think<|sep|>"), Lead("<|close|>think<|sep|>", after="<|open|>response<|sep|>")),
        ("kimi_k3", Start("<|open|>response<|sep|>"), None),
        ("inkling", Start("x", thinking=True), None),
        ("passthrough", Start("<think>", thinking=True), None),
        ("qwen3", Start("<think>\n", history="so far"), THINK),
        ("qwen3", Start("<think>\n", history="so far</think>\n\n{"), None),
        ("qwen3", Start("assistant\n", history="<think>so"), THINK),
        ("qwen3", Start("assistant\n", history="so", thinking=True), None),
    ],
)
def test_lead(name, start, expected):
    assert lead(row(REASONING, name), start) == expected
