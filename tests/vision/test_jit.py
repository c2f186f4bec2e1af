"""The compiled-code cache, and life without it (DESIGN 5)."""

import subprocess
import sys
from pathlib import Path

from smg.vision import jit

ROOT = Path(__file__).resolve().parents[2]


def test_the_cache_is_keyed_by_processor_versions_and_sources(tmp_path, monkeypatch):
    first = jit.cache_dir(tmp_path)
    assert first.is_relative_to(tmp_path / "kernels")
    monkeypatch.setattr(jit, "__version__", "99.0")
    assert jit.cache_dir(tmp_path) != first


def test_without_numba_nothing_fails(monkeypatch):
    monkeypatch.setattr(jit, "_ready", None)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert jit.warm("/nowhere") is False
    assert jit.kernels() is None


def test_a_failed_compilation_leaves_the_plain_path(compiled, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(jit, "_ready", None)

    def broken():
        raise RuntimeError("no code generator")

    monkeypatch.setattr(compiled, "compile_all", broken)
    assert jit.warm(tmp_path) is False
    assert jit.kernels() is None
    assert "did not compile" in caplog.text


def test_importing_the_package_loads_no_numba():
    """It must not be loaded before the supervisor forks."""
    code = (
        "import sys, smg.vision.families.table, smg.vision.fetch, smg.vision.decode; sys.exit('numba' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False).returncode
        == 0
    )
