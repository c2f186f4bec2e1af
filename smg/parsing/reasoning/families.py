"""The reasoning families with delimiters (spec parsers 5.1, 10)."""

from smg.parsing.reasoning.delimiters import Delimiters, head_of, name_head

_QWEN_CALL = ("<tool_call>",)
_JSON_OR_TAG = head_of("{", "<function=")
_KIMI_CALL = ("<|tool_calls_section_begin|>",)

PLAIN = Delimiters()
INSIDE = Delimiters(start="inside")

QWEN = Delimiters(tools=_QWEN_CALL, head=_JSON_OR_TAG)
QWEN_INSIDE = Delimiters(start="inside", tools=_QWEN_CALL, head=_JSON_OR_TAG)
# IQuest's models spell the marker in ways of their own.
GLM = Delimiters(tools=(*_QWEN_CALL, "<iquest_tool_call>", "<iquestcoder_tool_call>"), head=name_head)
STEP3P5 = Delimiters(start="inside", tools=_QWEN_CALL, head=_JSON_OR_TAG, trim=True)
GRANITE_42 = Delimiters(tools=_QWEN_CALL, head=_JSON_OR_TAG, trim=True)

DEEPSEEK_V31 = Delimiters(tools=("<｜tool▁calls▁begin｜>", "<｜DSML｜function_calls>"))
DEEPSEEK_V4 = Delimiters(tools=("<｜DSML｜tool_calls>", "<｜DSML｜ calls>", "<｜DSML｜calls>"))

KIMI_OLD = Delimiters(("◁think▷",), ("◁/think▷",))
KIMI = Delimiters(tools=_KIMI_CALL)
KIMI_INSIDE = Delimiters(start="inside", tools=_KIMI_CALL)

STEP3 = Delimiters(start="inside", tools=("<｜tool_calls_begin｜>",))
MINIMAX = Delimiters(start="inside", tools=("<minimax:tool_call>",))
MINIMAX_M3 = Delimiters(
    ("<mm:think>",), ("</mm:think>",), tools=("]<]minimax[>[<tool_call>",), tokens=("]<]minimax[>[",)
)
COHERE = Delimiters(
    ("<|START_THINKING|>",),
    ("<|END_THINKING|>",),
    tools=("<|START_ACTION|>",),
    drop=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)

MISTRAL = Delimiters(("[THINK]", "<think>"), ("[/THINK]", "</think>"), tools=("[TOOL_CALLS]",))
GRANITE = Delimiters(
    ("Here is my thought process:", "Here's my thought process:"),
    ("Here is my response:", "Here's my response:"),
    once=True,
)
HUNYUAN = Delimiters(
    ("<think>\n", "<think>"),
    ("\n</think>\n", "\n</think>", "</think>\n", "</think>"),
    drop=("<answer>\n", "<answer>", "\n</answer>", "</answer>"),
)
HY_V3 = Delimiters(
    ("<think>", "<think:opensource>"), ("</think>", "</think:opensource>"), tools=("<tool_calls>", "<tool_calls:")
)
ERNIE = Delimiters(
    start="inside", trim=True, drop=("\n<response>\n", "<response>\n", "<response>", "\n</response>", "</response>")
)
SEED = Delimiters(("<seed:think>",), ("</seed:think>",), tools=("<seed:tool_call>",))
GEMMA = Delimiters(("<|channel>thought\n", "<|channel>thought", "<|channel>"), ("<channel|>",), tools=("<|tool_call>",))
APERTUS = Delimiters(("<|inner_prefix|>",), ("<|inner_suffix|>",), tools=("<|tools_prefix|>",))
APRIEL = Delimiters((), ("[BEGIN FINAL RESPONSE]",), "inside", drop=("[END FINAL RESPONSE]",))
PLAMO = Delimiters(
    ("<|plamo:begin_think:plamo|>",),
    ("<|plamo:end_think:plamo|>",),
    tools=("<|plamo:begin_tool_requests:plamo|>",),
    drop=("<|plamo:tag|>",),
    tokens=("<|plamo:begin_", "<|plamo:end_", ":plamo|>"),
)
K2_HORIZON = Delimiters(
    ("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
    ("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
    "inside",
    tools=("<ifm|tool_calls>",),
)
LONGCAT = Delimiters(("<longcat_think>",), ("</longcat_think>",), tools=("<longcat_tool_call>",))
PANGU = Delimiters(
    ("[unused16]", "<think>"), ("[unused17]", "</think>"), "inside", tools=("[unused11]", "<|tool_call_start|>")
)
SOLAR2 = Delimiters(("<|think:start|>",), ("<|think:end|>",), tools=("<|tool_call:start|>",))
SOLAR = Delimiters(("<|think|>",), ("<|end|>",), drop=("<|begin|>assistant", "<|content|>", "<|end|>"))
