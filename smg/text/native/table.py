"""Which models have a renderer of their own, told by ``architectures`` and ``model_type`` in config.json."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from smg.text.native.base import deep_sorted
from smg.text.native.deepseek_v4 import DeepSeekV4
from smg.text.native.deepseek_v32 import DeepSeekV32
from smg.text.native.kimi_k3 import KimiK3
from smg.text.native.typescript import Inexpressible, declare
from smg.text.template import Template


class Native(msgspec.Struct, frozen=True):
    """``render`` makes the renderer from the tokenizer's joiner; ``complete`` adds to the context of a template.

    ``continues`` says whether an answer that was begun can be continued while the model is to think.
    """

    names: frozenset[str]
    render: Callable[[str], Template] | None = None
    complete: Callable[[dict[str, Any]], None] | None = None
    continues: bool = True


def _declare_tools(context: dict[str, Any]) -> None:
    if context.get("tools"):
        context["tools"] = deep_sorted(context["tools"])
        try:
            context.setdefault("tools_ts_str", declare(context["tools"]))
        except Inexpressible:
            return


NATIVES = (
    Native(frozenset({"DeepseekV32ForCausalLM"}), lambda joiner: DeepSeekV32()),
    Native(frozenset({"DeepseekV4ForCausalLM"}), lambda joiner: DeepSeekV4()),
    Native(frozenset({"KimiK25ForConditionalGeneration", "kimi_k25"}), complete=_declare_tools),
    Native(frozenset({"KimiK3ForConditionalGeneration", "kimi_k3"}), KimiK3, continues=False),
)


def find_native(config: Mapping[str, Any]) -> Native | None:
    """The row of the model with this config.json, None when its template is all there is."""
    listed = config.get("architectures")
    names = {name for name in [*(listed if isinstance(listed, list) else []), config.get("model_type")] if name}
    return next((row for row in NATIVES if not row.names.isdisjoint(map(str, names))), None)
