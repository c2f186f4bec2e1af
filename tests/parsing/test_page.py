"""docs/parsers.md says what the tests try."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_page_is_current(run):
    """When this fails: scripts/gen-parsers. The full run tries all the cases, so the differences are those of today."""
    path = ROOT / "scripts" / "lib" / "gen_parsers.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page(run=run) == (ROOT / "docs" / "parsers.md").read_text("utf-8")
