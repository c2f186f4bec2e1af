"""Which formats a model uses, from its chat template and its vocabulary (spec parsers 2.3). The first hit wins."""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec

# The id of a token by its text, None for a text that is no token.
TokenId: TypeAlias = Callable[[str], int | None]


class Evidence(msgspec.Struct, frozen=True):
    """A row: what must be in the template (all of ``texts``, and ``expression``) or be a token of the vocabulary, and
    the formats that it tells of; None where it tells nothing."""

    reasoning: str | None
    tools: str | None
    texts: tuple[str, ...] = ()
    token: str | None = None
    expression: str | None = None

    def found(self, template: str, tokens: frozenset[str]) -> bool:
        if self.token in tokens:
            return True
        if not self.texts or not all(text in template for text in self.texts):
            return False
        return self.expression is None or re.search(self.expression, template, re.DOTALL) is not None


_GLM_NAME_LINE = r"<tool_call>(?:\{[^}]*\}+|'[^']*'|[^<>\s])*\s*(?:\\n|\n)\s*(?:\{[^}]*\})?\s*<arg_key>"

ROWS: tuple[Evidence, ...] = (
    Evidence("gpt_oss", "gpt_oss", ("<|start|>assistant<|channel|>",), token="<|constrain|>"),
    Evidence("glm45", "iquest", ("<|iquest_assistant|>",)),
    Evidence("glm45", "iquest_coder", ("<iquestcoder_tool_call>",)),
    Evidence("solar_open2", "solar_open2", ("<|tool_arg:start|>",)),
    Evidence("longcat", "longcat", ("<longcat_tool_call>",)),
    Evidence("pangu", "pangu", ("[unused11]", "[unused12]")),
    Evidence("k2_horizon", "k2_horizon", ("<ifm|think>", "<ifm|tool_call>")),
    Evidence("plamo3", "plamo3", ("<|plamo:begin_tool_request",)),
    Evidence("muse_glimmer", "muse_glimmer", ("<atem:invoke",)),
    Evidence("apertus", "apertus", ("<|tools_prefix|>",), token="<|inner_prefix|>"),
    Evidence("gemma4", "gemma4", ("<|channel>",)),
    Evidence("kimi", None, ("◁think▷",)),
    Evidence("kimi_k3", "kimi_k3", ("<|open|>", "<|sep|>")),
    Evidence("kimi_k25", "kimik2", (), token="<|tool_calls_section_begin|>"),
    Evidence("mistral", "mistral", ("[THINK]",)),
    Evidence(None, "mistral", ("[TOOL_CALLS]",)),
    Evidence("minimax_m3", "minimax_m3", ("]<]minimax[>[",)),
    Evidence("minimax_m3", "minimax_m3", ("<mm:think>",)),
    Evidence("minimax", "minimax_m2", ("<minimax:tool_call>",)),
    Evidence("deepseek_v4", "deepseek_v4", ("<｜DSML｜ calls>",)),
    Evidence("deepseek_v4", "deepseek_v4", ("<｜DSML｜tool_calls>",)),
    Evidence("deepseek_v31", "deepseek32", ("<｜DSML｜function_calls>",)),
    Evidence("deepseek_v31", "deepseek", ("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "```json")),
    Evidence("deepseek_v31", "deepseek31", ("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>")),
    Evidence(None, "gigachat35", ("<｜GCML｜tool_calls>",)),
    Evidence(None, "gigachat3", ("<|function_call|>",)),
    Evidence(None, "lfm2", (), token="<|tool_call_start|>"),
    Evidence("hy_v3", "hy_v3", ("<tool_calls", "<tool_sep")),
    Evidence(None, "minicpm5", ("<function name=", "<param name=")),
    Evidence("step3", "step3", ("<steptml:invoke",)),
    Evidence("seed_oss", "seed_oss", ("<seed:tool_call>",)),
    Evidence(None, "qwen_xml", ("<function=", "<parameter=")),
    Evidence(None, "telechat4", ("<param_key>", "<param_value>")),
    Evidence("glm45", "glm45_moe", ("<arg_key>", "<arg_value>"), expression=_GLM_NAME_LINE),
    Evidence("glm45", "glm47_moe", ("<arg_key>", "<arg_value>")),
    Evidence(None, "nemotron_json", ("<TOOLCALL>",)),
    Evidence(None, "qwen", ("<tool_call>",), expression=r"<tool_call>.{0,40}?\{.{0,8}?name"),
    Evidence(None, "phi4mini", ("functools[",)),
    Evidence(None, "functionary32", (">>>", "recipient")),
    Evidence(None, "functionary31", ("<function=",), expression=r"<function=[^>]{0,64}>\{"),
)


VOCABULARY = tuple(row.token for row in ROWS if row.token is not None)


def tokens_of(token_id: TokenId) -> frozenset[str]:
    """The tokens of a vocabulary that are evidence."""
    return frozenset(text for text in VOCABULARY if token_id(text) is not None)


def detect(template: str, tokens: frozenset[str]) -> tuple[str | None, str | None]:
    """Names of the reasoning and the tool format, None where nothing tells."""
    for row in ROWS:
        if row.found(template, tokens):
            return row.reasoning, row.tools
    return None, None


def thinks(template: str) -> bool:
    """Whether ``template`` knows ``<think>``: the weakest evidence, so a model's name is asked before."""
    return "<think>" in template
