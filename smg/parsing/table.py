"""The one table of reasoning and tool-call formats, and which model names use which (spec parsers 2.1, 2.2).

Adding a format is a file in ``reasoning/`` or ``tools/`` and a row here. Reasoning rows are tried in order; of the tool
rows the one with the longest pattern counts.
"""

from smg.parsing import call_ids
from smg.parsing.engine.machine import factory as machine
from smg.parsing.format import DECLARED, PASSTHROUGH, Format
from smg.parsing.harmony import Harmony, Together
from smg.parsing.reasoning import families as think
from smg.parsing.reasoning.append import Append
from smg.parsing.reasoning.delimiters import factory
from smg.parsing.reasoning.inkling import Inkling
from smg.parsing.reasoning.kimi_k3 import KimiK3
from smg.parsing.reasoning.muse import Muse
from smg.parsing.tools import json_forms, named_forms, python_forms, xml_forms

REASONING: tuple[Format, ...] = (
    Format("gpt_oss", Harmony, ("gpt-oss", "gpt_oss"), ("harmony", "openai_gptoss", "gpt-oss"), together=Together),
    Format("deepseek_r1", factory(think.INSIDE), ("deepseek-r1", "qwq"), ("olmo3", "deepseek-r1", "gigachat35")),
    Format(
        "deepseek_v31",
        factory(think.DEEPSEEK_V31),
        ("deepseek-v3.1", "deepseek-v3-1", "deepseek-v3.2"),
        ("deepseek_v3", "deepseek-v3"),
    ),
    Format(
        "deepseek_v4",
        factory(think.DEEPSEEK_V4),
        ("deepseek-v4",),
        ("deepseek_v41", "deepseek_v4.1", "deepseek-v4", "deepseek-v41"),
    ),
    Format("qwen3_thinking", factory(think.QWEN_INSIDE), ("qwen3-thinking", "qwen-thinking"), ("qwen3-thinking",)),
    Format(
        "qwen3",
        factory(think.QWEN),
        ("qwen3", "mimo", "exaone-4", "exaone4"),
        (
            "qwen3_tagged",
            "qwen3_tagged_direct",
            "qwen2.5",
            "mimo",
            "nanbeige",
            "minicpmv",
            "exaone4",
            "telechat4",
            "xing4_0",
        ),
    ),
    Format(
        "glm45",
        factory(think.GLM),
        ("glm45", "glm47", "glm-4.5", "glm-4.6", "glm-4.7", "glm-5"),
        (
            "glm",
            "glm4",
            "glm47",
            "iquest",
            "iquest_q1",
            "iquest_coder",
            "hyperclovax_seed_think",
            "ling3",
            "ling",
            "poolside_v1",
            "spark25",
        ),
    ),
    Format("kimi_thinking", factory(think.KIMI_INSIDE), ("kimi-k2-thinking",)),
    Format("kimi_k25", factory(think.KIMI), ("kimi-k2.5",), ("kimi_k2",)),
    Format("kimi_k3", KimiK3, ("kimi-k3", "kimi_k3")),
    Format("kimi", factory(think.KIMI_OLD), ("kimi",)),
    Format("step3p5", factory(think.STEP3P5), ("step3.5", "step-3.5", "step3p5")),
    Format("step3", factory(think.STEP3), ("step3",)),
    Format("minimax_m3", factory(think.MINIMAX_M3), ("minimax-m3",), ("minimax-m3",)),
    Format("minimax", factory(think.MINIMAX), ("minimax", "mm-m2"), ("minimax_m2",)),
    Format("minimax_append", Append, (), ("minimax_m2_append_think", "minimax-append-think")),
    Format(
        "nano_v3",
        factory(think.QWEN),
        ("nemotron-nano", "nemotron-super", "nano-v3"),
        ("nemotron_v3", "nemotron_3", "nemotron", "llama_nemotron"),
    ),
    Format(
        "cohere_cmd",
        factory(think.COHERE),
        ("command-r", "command-a", "c4ai-command", "cohere"),
        ("cohere_command3", "cohere_command4"),
    ),
    Format("inkling", Inkling, ("inkling",)),
    Format("mistral", factory(think.MISTRAL), ("magistral",), ("mistral_v13",)),
    Format("granite_thinking", factory(think.GRANITE_42), ("granite-4.2",), ("granite_thinking_parser",)),
    Format("granite", factory(think.GRANITE), ("granite-3.2", "granite-3.3")),
    Format("hunyuan_a13b", factory(think.HUNYUAN), ("hunyuan-a13b",)),
    Format("hy_v3", factory(think.HY_V3), (), ("hy_v4", "hy4", "hunyuan")),
    Format("ernie45", factory(think.ERNIE), ("ernie-4.5", "ernie45")),
    Format("seed_oss", factory(think.SEED), ("seed-oss",)),
    Format("gemma4", factory(think.GEMMA), ("gemma-4",)),
    Format("apertus", factory(think.APERTUS), ("apertus",), ("apertus2509",)),
    Format("apriel", factory(think.APRIEL), ("apriel",)),
    Format("plamo3", factory(think.PLAMO), ("plamo-3",)),
    Format("solar_open2", factory(think.SOLAR2), ("solar-open2", "solar-open-2")),
    Format("solar_open", factory(think.SOLAR), ("solar-open",)),
    Format("longcat", factory(think.LONGCAT), ("longcat",)),
    Format("pangu", factory(think.PANGU), ("pangu",), ("openpangu", "openpangu_v2")),
    Format("k2_horizon", factory(think.K2_HORIZON), ("k2-horizon",)),
    Format("muse_glimmer", Muse, ("muse",), ("muse",)),
    Format(
        "base", factory(think.PLAIN), (), ("intern_s1", "intern-s1", "interns1", "holo2", "dots", "lfm2.5", "minicpm5")
    ),
    # Made for each model from its response template.
    Format(DECLARED, None),
    Format(PASSTHROUGH, None, (), ("identity", "plain")),
)

TOOLS: tuple[Format, ...] = (
    # The reasoning row's parser reads the calls too.
    Format("gpt_oss", None, ("gpt-oss", "gpt_oss"), ("harmony", "openai", "gpt-oss")),
    Format(
        "json",
        machine(json_forms.JSON),
        ("gpt-4", "gpt-3.5", "claude-", "llama-", "meta-llama-", "gemini-", "palm-", "gemma-", "glm-"),
    ),
    Format(
        "mistral",
        machine(named_forms.MISTRAL),
        ("mistral-", "mixtral-", "ministral", "magistral", "devstral"),
        ("mistral_v13",),
        call_ids.mistral,
        recall=call_ids.recall_mistral,
    ),
    Format(
        "qwen",
        machine(json_forms.HERMES),
        ("qwen", "qwq", "hermes-", "smollm3", "granite-4.0", "granite-4.1", "reka-", "bielik", "exaone-4", "exaone4"),
        (
            "hermes",
            "qwen3",
            "qwen3_json",
            "qwen2.5",
            "qwen25",
            "qwen3_tagged",
            "qwen3_tagged_direct",
            "trinity",
            "granite4",
            "exaone4",
        ),
    ),
    Format(
        "qwen_xml",
        machine(xml_forms.QWEN_XML),
        ("qwen3.5", "qwen3-coder", "step-3.5", "step3.5", "granite-4.2", "nanbeige", "nemotron-3"),
        ("qwen_coder", "qwen3_coder", "qwen3_xml", "step3p5", "nemotron_v3", "nemotron", "nanbeige"),
    ),
    Format("mimo", machine(xml_forms.MIMO), ("mimo-",), ("berrylm",)),
    Format("seed_oss", machine(xml_forms.SEED_OSS), ("seed-oss",)),
    Format("pythonic", machine(python_forms.PYTHONIC), ("llama-4", "meta-llama-4", "deepseek-"), ("llama4_pythonic",)),
    Format("olmo3", machine(python_forms.OLMO3), ("olmo-3",)),
    Format("lfm2", machine(python_forms.LFM2), ("lfm2",), ("lfm2.5",)),
    Format(
        "llama", machine(named_forms.LLAMA), ("llama-3.2", "meta-llama-3.2"), ("llama3", "llama3_json", "llama4_json")
    ),
    Format(
        "deepseek",
        machine(named_forms.DEEPSEEK),
        ("deepseek-v3", "deepseek-ai/deepseek-v3", "deepseek-r1"),
        ("deepseek_v3", "deepseekv3"),
    ),
    Format(
        "deepseek31",
        machine(named_forms.DEEPSEEK31),
        ("deepseek-v3.1", "deepseek-v3.2-exp", "deepseek-ai/deepseek-v3.1", "deepseek-ai/deepseek-v3.2-exp"),
        ("deepseek_v31", "deepseekv31"),
    ),
    Format(
        "deepseek32",
        machine(xml_forms.DEEPSEEK32),
        ("deepseek-v3.2", "deepseek-ai/deepseek-v3.2"),
        ("deepseek_v32", "deepseekv32"),
    ),
    Format(
        "deepseek_v4",
        machine(xml_forms.DEEPSEEK_V4),
        ("deepseek-v4", "deepseek-ai/deepseek-v4"),
        ("deepseek_v41", "deepseek_v4.1", "deepseekv4", "deepseekv41"),
    ),
    Format("gigachat35", machine(xml_forms.GIGACHAT35), ("gigachat3.5",)),
    Format("gigachat3", machine(json_forms.GIGACHAT3), ("gigachat3",)),
    Format("glm45_moe", machine(xml_forms.GLM), ("glm-4.5", "glm-4.6", "glm45"), ("glm45", "hyperclovax_seed_think")),
    Format(
        "glm47_moe",
        machine(xml_forms.GLM),
        ("glm-4.7", "glm-5", "glm47"),
        ("glm47", "glm", "glm4", "ling3", "ling", "poolside_v1", "spark25", "spark3"),
    ),
    Format("iquest", machine(xml_forms.IQUEST), ("iquest",), ("iquest_q1",)),
    Format("iquest_coder", machine(xml_forms.IQUEST_CODER), ("iquest-coder",), ("iquest_coder_v2",)),
    Format("telechat4", machine(xml_forms.TELECHAT4), ("telechat4", "telechat-4", "xing4"), ("xing4_0", "xingchen4")),
    Format("hy_v3", machine(xml_forms.HY_V3), (), ("hy_v4", "hy4", "hunyuan")),
    Format("step3", machine(xml_forms.STEP3), ("step3", "step-3")),
    Format("step_audio_2", machine(named_forms.STEP_AUDIO2), ("step-audio-2",)),
    Format("sarashina", machine(json_forms.SARASHINA), ("sarashina",)),
    Format(
        "kimik2",
        machine(named_forms.KIMI_K2),
        ("kimi-k2",),
        ("kimi_k2",),
        call_ids.kimi,
        recall=call_ids.recall_kimi,
    ),
    Format("kimi_k3", machine(xml_forms.KIMI_K3), ("kimi-k3", "kimi_k3"), (), call_ids.kimi_k3),
    Format("inkling", machine(json_forms.INKLING), ("inkling",)),
    Format("minimax_m2", machine(xml_forms.MINIMAX_M2), ("minimax",), ("minimax", "minimax-m2")),
    Format("minimax_m3", machine(xml_forms.MINIMAX_M3), ("minimax-m3",), ("minimax-m3",)),
    Format("minimax_m1", machine(json_forms.MINIMAX_M1), ("minimax-m1",)),
    Format(
        "cohere",
        machine(json_forms.COHERE),
        ("command-r", "command-a", "c4ai-command", "cohere"),
        ("cohere_command3", "cohere_command4"),
    ),
    Format("longcat", machine(json_forms.LONGCAT), ("longcat",)),
    Format("pangu", machine(json_forms.PANGU), ("pangu",), ("openpangu", "openpangu_v2")),
    Format("rwkv", machine(json_forms.RWKV), ("rwkv",)),
    Format("qwen2_5_coder", machine(json_forms.QWEN25_CODER), (), ("qwen25_coder",)),
    Format("jamba", machine(json_forms.TOOL_CALLS), ("jamba",)),
    Format("hunyuan_a13b", machine(json_forms.HUNYUAN_A13B), ("hunyuan-a13b",)),
    Format("apriel", machine(json_forms.APRIEL), ("apriel",)),
    Format(
        "nemotron_json", machine(json_forms.NEMOTRON_JSON), ("nemotron-nano",), ("llama_nemotron", "nemotron_nano_v2")
    ),
    Format("granite", machine(json_forms.GRANITE), ("granite-3",)),
    Format("granite_20b_fc", machine(json_forms.GRANITE_20B_FC), ("granite-20b",), ("granite-20b-fc",)),
    Format("internlm", machine(json_forms.INTERNLM), ("internlm", "intern-s1"), ("internlm2", "intern-s1", "interns1")),
    Format("phi4mini", machine(json_forms.FUNCTOOLS), ("phi-4", "firefunction"), ("phi4_mini_json",)),
    Format("xlam", machine(json_forms.XLAM), ("xlam",)),
    Format("ernie45", machine(json_forms.ERNIE45), ("ernie-4.5", "ernie45")),
    Format("functionary31", machine(named_forms.FUNCTIONARY31), ("functionary-small-v3.1", "functionary-medium-v3.1")),
    Format("functionary32", machine(named_forms.FUNCTIONARY32), ("functionary",)),
    Format("gemma4", machine(named_forms.GEMMA4), ("gemma-4",)),
    Format("functiongemma", machine(named_forms.FUNCTIONGEMMA), ("functiongemma",), ("function_gemma",)),
    Format("apertus", machine(json_forms.APERTUS), ("apertus",), ("apertus2509",)),
    Format("minicpm5", machine(xml_forms.MINICPM5), ("minicpm5",)),
    Format("dots", machine(xml_forms.DOTS), ("dots3",), ("dots3",)),
    Format("solar_open", machine(named_forms.SOLAR_OPEN), ("solar-open",)),
    Format("solar_open2", machine(xml_forms.SOLAR_OPEN2), ("solar-open2", "solar-open-2")),
    Format("plamo3", machine(named_forms.PLAMO3), ("plamo-3",)),
    Format("k2_horizon", machine(xml_forms.K2_HORIZON), ("k2-horizon",)),
    Format("muse_glimmer", machine(xml_forms.MUSE), ("muse",), ("muse",)),
    Format(DECLARED, None),
    Format(PASSTHROUGH, None, (), ("plain",)),
)
