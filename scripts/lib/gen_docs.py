"""Writes docs/configuration.md from the settings tree, and the table of docs/engines.md. Run by scripts/gen-docs."""

import argparse
import sys
from itertools import groupby
from pathlib import Path

from smg.config.fields import Field, fields, group_text
from smg.engines.capabilities import CONTRACT_FEATURES
from smg.engines.table import ADAPTERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "configuration.md"
ENGINES = DOCS / "engines.md"
# The generated part of the page about engines lies between these lines.
BEGIN, END = "<!-- features: written by scripts/gen-docs -->\n", "<!-- end of features -->\n"

MODELS = """
## models

Settings of single models, by their id or alias; only a file can give them. The names are those of the group `model`,
and what is given here wins over it for that model.

```yaml
models:
  deepseek-r1:
    reasoning_parser: deepseek_r1
  org/other-model:
    tokenizer_path: /models/other
    chat_template: /models/other.jinja
    tool_call_parser: llama
```
"""

INTRODUCTION = """\
# Configuration

This page is generated from the settings (`scripts/gen-docs`); `smg-server --help` shows the same.

Each setting can be given in four places. The first that has it wins:

1. a **flag**: `--port 8080`;
2. an **environment variable**: `SMG_PORT=8080`;
3. a **YAML file** named by `--config FILE`: its group and name, as in the last column;
4. the default.

```yaml
server:
  port: 8080
  workers: 4
fleet:
  worker_urls:
    - grpc://10.0.0.1:50051
    - grpc://10.0.0.2:50051
security:
  api_key: [first-key, second-key]
```

* Lists take several values: `--worker-urls A B`, `--worker-urls A,B` or the flag again. In the environment they are
  separated by spaces, or by commas. Keys are the exception: one for each `--api-key`, and no splitting at commas.
* Switches have an opposite: `--log-json` and `--no-log-json`. In the environment and in YAML they are `true` or
  `false`.
* All mistakes are reported together, then `smg-server` ends with status 2. A key's value is never shown.
* A key in a flag can be seen in the process list: prefer the environment or the file.
"""


def default(field: Field) -> str:
    """The default as a reader would write it; it must not depend on the machine the page is made on."""
    if field.name == "state_dir":
        return "`$XDG_STATE_HOME/smg`, else `~/.local/state/smg`"
    if field.default in (None, ()):
        return "–"
    if field.shape == "flag":
        return "on" if field.default else "off"
    if field.shape == "list":
        return " ".join(f"`{item}`" for item in field.default)
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def value(field: Field) -> str:
    """What a value looks like: its type or choices, and its limits."""
    if field.choices:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    kind = {"int": "integer", "float": "number", "str": "text", "bool": "switch"}[field.kind.__name__]
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    limits = ", ".join(f"{signs[name]} {limit:.15g}" for name, limit in field.limits.items())
    return ("list of " if field.shape == "list" else "") + kind + (f", {limits}" if limits else "")


def row(field: Field) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (field.flag, *field.aliases))
    text = field.text.replace("|", "\\|")
    return f"| {flags} | {text} | {value(field)} | {default(field)} | `{field.env}` | `{field.path}` |"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for group, members in groupby(fields(), key=lambda field: field.group):
        parts.append(
            f"\n## {group}\n\n{group_text(group)}\n\n"
            "| flag | meaning | value | default | environment | YAML |\n| --- | --- | --- | --- | --- | --- |\n"
        )
        parts += [row(field) + "\n" for field in members]
    return "".join(parts) + MODELS


def features() -> str:
    """The table of features by contract."""
    contracts = {name: make().capabilities for name, make in ADAPTERS.items()}
    lines = [f"| feature | {' | '.join(contracts)} |", f"| --- |{' :-: |' * len(contracts)}"]
    for feature, text in CONTRACT_FEATURES.items():
        marks = ("yes" if feature in has else "–" for has in contracts.values())
        lines.append(f"| {text} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


def engines(text: str) -> str:
    """The page about engines with its generated part renewed."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + features() + END + rest.partition(END)[2]


def main() -> int:
    own = argparse.ArgumentParser(description=__doc__)
    own.add_argument("--check", action="store_true", help="write nothing; status 1 when a page is not current")
    made = {PAGE: page(), ENGINES: engines(ENGINES.read_text("utf-8"))}
    if own.parse_args().check:
        old = [path.name for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
        if old:
            print(f"not current: {', '.join(old)}; run scripts/gen-docs", file=sys.stderr)
        return 1 if old else 0
    for path, text in made.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
