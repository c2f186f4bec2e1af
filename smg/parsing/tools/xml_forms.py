"""Families that write arguments one by one, in elements or pairs (spec parsers 6.4, 6.9 to 6.11, 6.14, 6.16, 9)."""

from smg.parsing.engine.grammar import Call, Grammar
from smg.parsing.engine.json_calls import JsonCalls
from smg.parsing.engine.named import Attributes, Bare, Named
from smg.parsing.engine.nested import Nested
from smg.parsing.engine.params import KeyAttribute, KeyElement, KeyInTag, Params
from smg.parsing.markers import GAP, WORD
from smg.parsing.tools.named_forms import END_OF_SENTENCE


def _function(begin: str, end: str, *, verbatim: bool = False) -> Grammar:
    """``<function=NAME><parameter=KEY>value</parameter></function>``, with or without a wrapper around it."""
    params = Params(
        KeyInTag(("<parameter=",)),
        close=("</parameter>",),
        end=("</function>", end),
        # Where texts are verbatim, a line end around one is its own.
        trim=not verbatim,
        verbatim=verbatim,
    )
    call = Call(Named(Bare(ends=(">",)), params), open=("<function=",), close=("</function>",))
    return Grammar((call,), begin=(begin,), end=(end,))


QWEN_XML = _function("<tool_call>", "</tool_call>")
MIMO = _function("<tool_call>", "</tool_call>", verbatim=True)
SEED_OSS = _function("<seed:tool_call>", "</seed:tool_call>")


def _invoke(begin: str, end: str, *, entities: bool = False, space: str = "") -> Grammar:
    """``<invoke name="NAME"><parameter name="KEY">value</parameter></invoke>`` in a wrapper; or JSON in it.

    ``space`` is the elements' namespace.
    """
    close = f"</{space}invoke>"
    params = Params(
        KeyAttribute((f"<{space}parameter",)),
        close=(f"</{space}parameter>",),
        end=(close, end),
        entities=entities,
        json=True,
    )
    call = Call(Named(Attributes(), params), open=(f"<{space}invoke",), close=(close,))
    return Grammar((call,), begin=(begin,), end=(end,), wrapped=True)


MINIMAX_M2 = _invoke("<minimax:tool_call>", "</minimax:tool_call>", entities=True)
MUSE = _invoke("<atem:function_calls>", "</atem:function_calls>", space="atem:")
DOTS = _invoke("<dots_function_call>", "</dots_function_call>")

_M3 = "]<]minimax[>["
_M3_END = (f"{_M3}</invoke>", f"{_M3}</tool_call>")
MINIMAX_M3 = Grammar(
    (Call(Named(Attributes(), Nested(_M3, _M3_END)), open=(f"{_M3}<invoke",), close=_M3_END[:1]),),
    begin=(f"{_M3}<tool_call>",),
    end=_M3_END[1:],
    wrapped=True,
    tokens=(_M3,),
)

MINICPM5 = Grammar(
    (
        Call(
            Named(
                Attributes(),
                Params(KeyAttribute(("<param",)), close=("</param>",), end=("</function>",), cdata=True),
            ),
            open=("<function ",),
            close=("</function>",),
        ),
    )
)

STEP3 = Grammar(
    (
        Call(
            Named(
                Attributes(),
                Params(
                    KeyAttribute(("<steptml:parameter",)),
                    close=("</steptml:parameter>",),
                    end=("</steptml:invoke>", "<｜tool_call_end｜>"),
                ),
            ),
            open=(f"<｜tool_call_begin｜>{GAP}function{GAP}<｜tool_sep｜>{GAP}<steptml:invoke",),
            close=(f"</steptml:invoke>{GAP}<｜tool_call_end｜>", "</steptml:invoke>", "<｜tool_call_end｜>"),
        ),
    ),
    begin=("<｜tool_calls_begin｜>",),
    end=("<｜tool_calls_end｜>",),
    drop=("<｜tool_calls_end｜>",),
)


def _dsml(prefix: str, *blocks: str) -> Grammar:
    """Elements whose names carry ``prefix``; ``blocks`` are the names of the wrapper. The blank line in front of the
    wrapper belongs to the format."""
    tags = [f"{prefix}{GAP}{block}>" for block in blocks]
    params = Params(
        KeyAttribute((f"<{prefix}{GAP}parameter",), text=("string", "true")),
        close=(f"</{prefix}{GAP}parameter>",),
        end=(f"</{prefix}{GAP}invoke>", *(f"</{tag}" for tag in tags)),
        json=True,
        drop=(END_OF_SENTENCE,),
    )
    call = Call(Named(Attributes(), params), open=(f"<{prefix}{GAP}invoke",), close=(f"</{prefix}{GAP}invoke>",))
    return Grammar(
        (call,),
        begin=tuple(blank + "<" + tag for tag in tags for blank in ("", "\n\n")),
        end=tuple("</" + tag for tag in tags),
        wrapped=True,
        drop=(END_OF_SENTENCE,),
    )


DEEPSEEK32 = _dsml("｜DSML｜", "function_calls")
DEEPSEEK_V4 = _dsml("｜DSML｜", "tool_calls", "calls", "toolcalls", "tool")
GIGACHAT35 = _dsml("｜GCML｜", "tool_calls")


SOLAR_OPEN2 = Grammar(
    (
        Call(
            Named(
                Bare(ends=("\n",), kept=("<|tool_arg:start|>", "<|tool_call:end|>")),
                Params(
                    KeyInTag(("<|tool_arg:start|>",), "<|tool_arg:value|>"),
                    close=("<|tool_arg:end|>",),
                    end=("<|tool_call:end|>", "<|tool_call:start|>"),
                    verbatim=True,
                ),
            ),
            open=("<|tool_call:start|>",),
            close=("<|tool_call:end|>",),
        ),
    )
)


def _pairs(
    call: str,
    *,
    end: str = "",
    begin: tuple[str, ...] = (),
    close: tuple[str, ...] = (),
    verbatim: bool = False,
    tokens: tuple[str, ...] = (),
) -> Grammar:
    """``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>``; line ends between them are
    optional."""
    closer = "</" + call.removeprefix("<")
    params = Params(
        KeyElement((f"<arg_key{end}>",), (f"</arg_key{end}>",), (f"<arg_value{end}>",)),
        close=(f"</arg_value{end}>",),
        end=(closer,),
        verbatim=verbatim,
    )
    name = Bare(ends=("\n", "\\n", f"<tool_sep{end}>"), kept=(f"<arg_key{end}>", closer))
    return Grammar((Call(Named(name, params), open=(call,), close=(closer,)),), begin=begin, end=close, tokens=tokens)


GLM = _pairs("<tool_call>")
IQUEST = _pairs("<iquest_tool_call>", verbatim=True)
IQUEST_CODER = _pairs("<iquestcoder_tool_call>")
# Tokens of these may carry a suffix after a colon.
HY_V3 = _pairs(
    f"<tool_call{WORD}>",
    end=WORD,
    begin=(f"<tool_calls{WORD}>",),
    close=(f"</tool_calls{WORD}>",),
    tokens=tuple(
        f"<{slash}{name}{suffix}>"
        for name in ("tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value")
        for slash in ("", "/")
        for suffix in ("", ":opensource")
    ),
)

# The arguments may also be an object behind the name, or the whole call one.
_TELECHAT_CALL = ("<tool_call>", "</tool_call>")
TELECHAT4 = Grammar(
    (
        Call(JsonCalls(separators=","), open=_TELECHAT_CALL[:1], close=_TELECHAT_CALL[1:], first="{"),
        Call(
            Named(
                Bare(ends=("\n",), kept=("<param_key>", "{", _TELECHAT_CALL[1])),
                Params(
                    KeyElement(("<param_key>",), ("</param_key>",), ("<param_value>",)),
                    close=("</param_value>",),
                    end=_TELECHAT_CALL[1:],
                    json=True,
                ),
            ),
            open=_TELECHAT_CALL[:1],
            close=_TELECHAT_CALL[1:],
        ),
    )
)

_IFM_CALL = ("<ifm|tool_call>", "</ifm|tool_call>")
K2_HORIZON = Grammar(
    (
        Call(JsonCalls(), open=_IFM_CALL[:1], close=_IFM_CALL[1:], first="{"),
        Call(
            Named(
                Bare(ends=("\n",), kept=("<ifm|arg_key>", _IFM_CALL[1])),
                Params(
                    KeyElement(
                        ("<ifm|arg_key>",),
                        ("</ifm|arg_key>",),
                        ("<ifm|arg_value>",),
                        ("<ifm|arg_type>", "</ifm|arg_type>"),
                    ),
                    close=("</ifm|arg_value>",),
                    end=_IFM_CALL[1:],
                ),
            ),
            open=_IFM_CALL[:1],
            close=_IFM_CALL[1:],
        ),
    ),
    begin=("<ifm|tool_calls>",),
    end=("</ifm|tool_calls>",),
)


def _unescape(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _tag(kind: str, name: str) -> str:
    return f"<|{kind}|>{GAP}{name}{GAP}<|sep|>"


KIMI_K3 = Grammar(
    (
        Call(
            Named(
                Attributes("tool", "<|sep|>", _unescape),
                Params(
                    KeyAttribute(
                        (f"<|open|>{GAP}argument",), "key", "<|sep|>", text=("type", "string"), unescape=_unescape
                    ),
                    close=(_tag("close", "argument"),),
                    end=(_tag("close", "call"), _tag("close", "tools")),
                ),
            ),
            open=(f"<|open|>{GAP}call",),
            close=(_tag("close", "call"),),
        ),
    ),
    begin=(_tag("open", "tools"),),
    end=(_tag("close", "tools"),),
    wrapped=True,
    drop=(
        *(_tag(kind, name) for kind in ("open", "close") for name in ("response", "message")),
        _tag("close", "think"),
        "<|end_of_msg|>",
    ),
)
