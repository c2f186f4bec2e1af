"""The layout of DESIGN 4 that import-linter cannot see."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = sorted((ROOT / "smg" / "_native").glob("*.py*"))
IMPORT = re.compile(r"^\s*(?:from|c?import)\s+(smg[\w.]*)", re.MULTILINE)


def test_native_modules_import_nothing_of_smg_outside_native():
    for path in NATIVE:
        for name in IMPORT.findall(path.read_text("utf-8")):
            assert name.startswith("smg._native"), f"{path.name} imports {name}"


@pytest.mark.parametrize("source", [path for path in NATIVE if path.suffix == ".pyx"], ids=lambda path: path.name)
def test_native_modules_have_a_type_stub(source):
    assert source.with_suffix(".pyi").exists()


def test_every_package_says_what_it_is_for():
    for init in (ROOT / "smg").rglob("__init__.py"):
        assert init.read_text("utf-8").startswith('"""'), init


def test_at_least_two_native_modules_are_built():
    from smg._native import region, sse

    assert region.__file__.endswith(".so")
    assert sse.__file__.endswith(".so")


def test_the_wire_contract_is_a_package_and_never_a_copy():
    copies = list(ROOT.joinpath("smg").rglob("*_pb2*.py"))
    assert copies == []
    for proto in ROOT.joinpath("proto").rglob("*.proto"):
        # File names in protobuf's pool are global: ours live under a path of their own.
        assert proto.relative_to(ROOT / "proto").parts[0] == "smg_server", proto
