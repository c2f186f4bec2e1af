"""``smg-bench routing --plot``: what is drawn of the figures, and what is said when it cannot be."""

import json
import sys
from xml.etree import ElementTree

import pytest

from smg import cli
from smg.cli import bench

POLICY = {"hit_token_ratio": 0.437, "ttft_mean_ms": 63.0, "ttft_p99_ms": 288.0, "max_over_mean_load": 1.37}
FIGURES = {
    trace: {"cache_aware": POLICY, "round_robin": {**POLICY, "ttft_p99_ms": 7777.0}}
    for trace in ("multi_turn", "hot_key")
}
PANELS = ("TTFT, ms: mean, p99 (pale)", "hit tokens", "busiest by mean load")


@pytest.fixture
def figures(tmp_path):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(FIGURES))
    return path


def drawn(path):
    """(ids of the groups, all texts) of a figure."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = ["".join(each.itertext()).strip() for each in root.iter("{http://www.w3.org/2000/svg}text")]
    return {each.get("id") for each in root.iter("{http://www.w3.org/2000/svg}g")}, texts


def plot(figures, target):
    return bench.main(["routing", "--json", "--figures", str(figures), "--plot", str(target)])


def test_one_file_has_the_panels_of_every_trace(figures, tmp_path):
    assert plot(figures, tmp_path / "all.svg") == 0
    groups, texts = drawn(tmp_path / "all.svg")
    for trace in FIGURES:
        for panel in PANELS:
            assert f"{trace}:{panel}" in groups
            assert texts.count(f"{trace}: {panel}") == 1
    # The bars are labelled with what the file says: two traces, and the p99 of round robin is another.
    assert [texts.count(value) for value in ("63", "288", "7777", "0.437", "1.37")] == [4, 2, 2, 4, 4]
    assert texts.count("cache_aware") == texts.count("round_robin") == len(FIGURES)


def test_a_directory_gets_a_file_for_each_trace(figures, tmp_path, capsys):
    assert plot(figures, tmp_path / "new" / "plots") == 0
    assert sorted(path.name for path in (tmp_path / "new" / "plots").iterdir()) == ["hot_key.svg", "multi_turn.svg"]
    groups, _ = drawn(tmp_path / "new" / "plots" / "hot_key.svg")
    assert {group for group in groups if group and ":" in group} == {f"hot_key:{panel}" for panel in PANELS}
    told = capsys.readouterr()
    assert json.loads(told.out) == FIGURES
    assert "hot_key.svg" in told.err


def test_the_same_figures_give_the_same_file(figures, tmp_path):
    for name in ("a.svg", "b.svg"):
        assert plot(figures, tmp_path / name) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_without_matplotlib_it_says_how_to_get_it_before_anything_runs(figures, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "smg.cli.routing_plot", raising=False)
    monkeypatch.delattr(cli, "routing_plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("smg.cli.routing_bench.run", None)
    assert bench.main(["routing", "--plot", str(tmp_path / "all.svg")]) == 2
    assert "matplotlib is missing; try: " in capsys.readouterr().err
    assert not (tmp_path / "all.svg").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "truncated"),
        ('{"hot_key": {"cache_aware": {"hit_token_ratio": 0.5}}}', "figures.json has no ttft_mean_ms"),
    ],
)
def test_a_file_that_is_none_of_figures_is_told(content, message, tmp_path, capsys):
    path = tmp_path / "figures.json"
    if content is not None:
        path.write_text(content)
    assert plot(path, tmp_path / "all.svg") == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_a_place_that_cannot_be_written_is_told(figures, tmp_path, capsys):
    assert plot(figures, tmp_path / "missing" / "all.svg") == 2
    assert "No such file" in capsys.readouterr().err
