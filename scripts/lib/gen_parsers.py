"""Writes docs/parsers.md from the table of formats and the cases of their tests. Run by scripts/gen-parsers."""

import argparse
import sys
from pathlib import Path

from smg.constraints.calls import shape
from tests.parsing.report import Figures, figures

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parsers.md"

INTRODUCTION = """\
# Reasoning and tool-call formats

Models write their reasoning and their tool calls into the text, each family in its own way. The gateway takes them out
again: reasoning becomes `reasoning_content`, calls become `tool_calls`, and what is left is the content.

## Which format a model uses

1. The one that `--reasoning-parser` and `--tool-call-parser` name, by a name or another name of the tables below.
2. The one that the model's chat template and vocabulary show.
3. The one that the checkpoint declares itself (`hf`, below).
4. The one for the model's name.
5. None: all text is content.

Calls are looked for when the request offers tools and its `tool_choice` is not `none`; the model is then shown the
tools, but whatever it writes stays text.

## What can be relied on

* An answer is the same whether it is streamed or not, and wherever the engine's messages cut the text.
* Nothing is lost: what is neither reasoning nor a call is content. Markers without a call come back as they were.
* A marker that the vocabulary has as a token (an added token, special or not) counts only as that token: a model that
  quotes `</think>` or `<tool_call>` in an answer spells it in other tokens, and that stays text. Markers that are no
  tokens, or have parts that are none, are found by their text. So are all markers where there are no ids (engines that
  send text), where a grammar binds the output (it may spell a marker in any tokens), and with `--marker-match text`:
  for fine-tunes that spell the markers of their vocabulary in pieces, for all models or for one in its own settings.
  Whether spelled markers are a quotation or meant cannot be told from an answer, so nothing is guessed: the first one
  of a model is logged with a warning, and `smg_markers_spelled_total` counts such answers.
* A call's name comes whole and before its arguments; arguments are sent while the model writes them, and joined they
  are one JSON object. Numbers keep all their digits.
* Where a format writes values without types, the tool's schema gives them their type.
* When the output is cut inside a call, the arguments are cut too: nothing is closed for the model, and the finish
  reason stays `length`.
* With `parallel_tool_calls: false` only the first call counts; further ones are neither calls nor text.
* A call of a tool that the request does not offer is passed on if the model marked it as a call, and is text if the
  format has no markers. `--unknown-tool-policy` makes it a call, nothing or text in all formats.
* Limits: 256 calls in an answer, 16 MiB of arguments in a call, 128 levels of nesting. What goes beyond is text.

## What a checkpoint declares

`tokenizer_config.json` may have a `response_template`, in the form of Hugging Face's
[response parsing](https://huggingface.co/docs/transformers/main/chat_response_parsing): fields with a beginning and an
end, and how each is read. It is used where neither settings nor chat template tell the format, or by the name `hf`, for
reasoning and for calls. `thinking`, `reasoning` or `reasoning_content` is reasoning, `tool_calls` are calls, and every
other field is content. All kinds of content and transforms are read as the library reads them; where it would throw
text away (text outside of all fields, a field that comes twice, a call that cannot be read), the text is content, and
white space at the end of a text is kept but for two line ends in front of a marker. Arguments in plain JSON are sent
while the model writes them, other kinds when the call has ended. Templates with regular expressions need the package
`regex` (`pip install 'smg-server[hf]'`), and their markers are found by text; an expression that takes longer than
50 ms costs the answer its parsing. A template that cannot be used is logged and left out.
"""

COLUMNS = (
    "| name | other names | model names | cases | splits tried | differences |\n| --- | --- | --- | --- | --- | --- |\n"
)
TOOL_COLUMNS = (
    "| name | other names | model names | forced calls | cases | splits tried | differences |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


def line(one: Figures, more: str = "") -> str:
    """A format's row of the page; ``more`` comes before the figures."""
    names = ", ".join(f"`{name}`" for name in one.row.aliases)
    models = ", ".join(f"`{pattern}`" for pattern in one.row.patterns)
    return f"| `{one.row.name}` | {names} | {models} |{more} {one.cases} | {one.splits} | {one.differences} |\n"


def tool_line(one: Figures) -> str:
    """A tool format's row: also in what form a forced call comes."""
    found = shape(one.row.name, lambda token: False)
    form = "JSON" if found is None else "own form" if found.free else "own form, only forced"
    return line(one, f" {form} |")


def page(run: bool = True) -> str:
    """The whole page; without ``run`` the differences are taken to be none."""
    reasoning, tools = figures(run)
    return (
        f"{INTRODUCTION}\n## Tests\n\n"
        "Each format's cases are texts as its models write them, cut in every way that matters (`tests/splits.py`). A\n"
        "difference would be a message that depends on how its text was cut. This page is generated\n"
        "(`scripts/gen-parsers`); `scripts/test --full` does it again.\n\n"
        "*Forced calls* tells what an engine with structural tags is held to under `tool_choice` `required` or a\n"
        "named tool: the format's own form, or plain JSON. *Only forced*: what has no marker cannot be told from free\n"
        "text, so strict tools bind nothing under `auto`. `gpt_oss` (Harmony), whose calls its reasoning parser\n"
        "reads, has its own form too.\n"
        f"\n### Reasoning\n\n{COLUMNS}{''.join(map(line, reasoning))}"
        f"\n### Tool calls\n\n{TOOL_COLUMNS}{''.join(map(tool_line, tools))}"
    )


def main() -> int:
    own = argparse.ArgumentParser(description=__doc__)
    own.add_argument("--check", action="store_true", help="write nothing; status 1 when the page is not current")
    check = own.parse_args().check
    made = page()
    if check:
        current = PAGE.exists() and PAGE.read_text("utf-8") == made
        if not current:
            print(f"{PAGE.name} is not current: run scripts/gen-parsers", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
