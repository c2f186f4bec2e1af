"""The compiled-code cache, and life without it (DESIGN 5)."""

import logging
import subprocess
import sys
from pathlib import Path

from smg.vision import jit

ROOT = Path(__file__).resolve().parents[2]


def test_the_cache_is_keyed_by_processor_versions_and_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "__version__", "98.0")
    first = jit.cache_dir(tmp_path)
    assert first.is_relative_to(tmp_path / "kernels")
    monkeypatch.setattr(jit, "__version__", "99.0")
    assert jit.cache_dir(tmp_path) != first


def test_an_installation_that_has_them_all_comes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "__version__", "99.0")
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "smg" / "jit.py"))
    for name in ("kernels.py", "vectors.py", "audio/kernels.py"):
        source = tmp_path / "smg" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(name)
    state = tmp_path / "state"
    installed = jit.cache_dir(None)
    assert installed.is_relative_to(tmp_path / "smg")
    installed.mkdir(parents=True)
    assert jit.cache_dir(state).is_relative_to(state), "a part of them is not enough"
    assert not jit.cached(state)
    (installed / "complete").touch()
    assert jit.cache_dir(state) == installed
    assert jit.cached(state)
    (tmp_path / "smg" / "vectors.py").write_text("changed")
    assert jit.cache_dir(state).is_relative_to(state), "they were made from other sources"


def test_whoever_warms_first_leaves_them_for_the_others(compiled, monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.INFO, "smg.vision")
    monkeypatch.setattr(jit, "__version__", "99.0")
    for known in (False, True):
        monkeypatch.setattr(jit, "_ready", None)
        assert jit.cached(tmp_path) is known
        assert jit.warm(tmp_path)
    records = [vars(record) for record in caplog.records if record.message == "the media kernels are ready"]
    assert [record["compiled"] for record in records] == [True, False]


def test_a_folder_that_cannot_be_written_costs_time_only(compiled, monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "__version__", "99.0")
    monkeypatch.setattr(jit, "_ready", None)
    (tmp_path / "kernels").write_text("not a folder")
    assert jit.warm(tmp_path)
    assert not jit.cached(tmp_path)


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
