"""The documentation agrees with the code: settings, flags, links, and snippets that at least compile."""

import importlib.util
import itertools
import re
from pathlib import Path

import pytest

from smg.cli import bench, engine, fleet
from smg.config.fields import fields

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# Flags of other programs that the pages name, and of our scripts.
OTHER = {
    *("--grpc", "--headless"),  # vllm serve
    *("--fast", "--full", "--sanitize", "--real-vllm", "--help", "--config", "--check", "--strict", "--inplace"),
    *("--tokens", "--contract", "--json"),  # smg-engine mock, smg-bench
    *("--instructions", "--stream", "--tools", "--tree"),  # benchmarks/request.py
    *("--enable-output-logprobs",),  # TokenSpeed
    *("--no-deps",),  # pip
    *("--peer-smg", "--scenarios", "--repeats", "--ours"),  # the comparison lab's compare.py
}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_page_is_current():
    """When this fails: scripts/gen-docs."""
    made = load(ROOT / "scripts" / "lib" / "gen_docs.py").page()
    assert made == (ROOT / "docs" / "configuration.md").read_text("utf-8")


def test_the_table_of_engine_features_is_current():
    """When this fails: scripts/gen-docs."""
    page = (ROOT / "docs" / "engines.md").read_text("utf-8")
    assert load(ROOT / "scripts" / "lib" / "gen_docs.py").engines(page) == page
    assert "| text generation | yes | yes | yes | yes | yes |" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_flag_that_is_named_exists(page):
    known = {flag for field in fields() for flag in (field.flag, *field.aliases)} | OTHER
    known |= {flag for action in fleet.parser()._actions for flag in action.option_strings}
    known |= {"--no-" + field.flag[2:] for field in fields() if field.shape == "flag"}
    programs = (program.parser()._subparsers._group_actions[0].choices.values() for program in (bench, engine))
    for command in itertools.chain(*programs):
        known |= {flag for action in command._actions for flag in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", page.read_text("utf-8")))
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link


def test_python_snippets_compile():
    for snippet in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL):
        compile(snippet, "README.md", "exec")


def test_scripts_and_pages_name_no_package_index():
    files = [*PAGES, *(path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.suffix != ".pyc")]
    for path in files:
        assert not re.search(r"pypi\.org|pythonhosted|--index-url", path.read_text("utf-8")), path
