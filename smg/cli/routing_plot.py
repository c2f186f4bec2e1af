"""``smg-bench routing --plot``: the figures as pictures, one row of small panels per trace (spec routing 12).

Needs matplotlib (the extra ``bench``); importing this module raises ModuleNotFoundError without it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Figures = Mapping[str, Mapping[str, Mapping[str, float]]]

# Of each panel: its title, the figures in it, dark one first, and whether its axis is logarithmic.
PANELS = (
    ("TTFT, ms: mean, p99 (pale)", ("ttft_mean_ms", "ttft_p99_ms"), True),
    ("hit tokens", ("hit_token_ratio",), False),
    ("busiest by mean load", ("max_over_mean_load",), False),
)
COLOURS = ("#30638e", "#b9cde0")
WIDTH_IN, ROW_IN = 9.0, 1.45
# Text stays text, and the same figures give the same bytes.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "smg", "font.size": 7.0, "axes.titlesize": 7.5}


def draw(figures: Figures, target: Path) -> list[Path]:
    """Draw ``figures`` (by trace, policy and name); returns the files written.

    A ``target`` that ends in ``.svg`` is one file with all traces; anything else a directory, made if need be, with
    ``TRACE.svg`` for each. Raises OSError when it cannot be written.
    """
    if target.suffix == ".svg":
        groups = {target: list(figures)}
    else:
        target.mkdir(parents=True, exist_ok=True)
        groups = {target / f"{trace}.svg": [trace] for trace in figures}
    for path, traces in groups.items():
        _write(figures, traces, path)
    return list(groups)


def _write(figures: Figures, traces: Sequence[str], path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        sheet = Figure(figsize=(WIDTH_IN, 0.5 + ROW_IN * len(traces)), layout="constrained")
        grid = sheet.subplots(len(traces), len(PANELS), squeeze=False)
        for row, trace in zip(grid, traces, strict=True):
            for axes, (title, names, logarithmic) in zip(row, PANELS, strict=True):
                _panel(axes, figures[trace], names, logarithmic)
                axes.set_gid(f"{trace}:{title}")
                axes.set_title(f"{trace}: {title}")
            for axes in row[1:]:
                axes.set_yticklabels([])
        sheet.savefig(path, format="svg", metadata={"Date": None})


def _panel(axes: Axes, policies: Mapping[str, Mapping[str, float]], names: Sequence[str], logarithmic: bool) -> None:
    """One bar per policy and figure, the policies from top to bottom as they were told."""
    thick = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [at + (number - (len(names) - 1) / 2) * thick for at in range(len(policies))]
        values = [each[name] for each in policies.values()]
        bars = axes.barh(places, values, thick, color=COLOURS[number])
        axes.bar_label(bars, fmt="{:.3g}" if not logarithmic else "{:.0f}", padding=1, fontsize=5.5)
    axes.set_yticks(range(len(policies)), list(policies))
    axes.invert_yaxis()
    axes.margins(x=0.14)
    if logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    # The bars say their values.
    axes.set_xticks([])
