"""The step that compiles media kernels belongs to environments that have Numba; others are whole without it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("has_numba", "compiled"), [(False, 0), (True, 1)])
def test_kernels_are_compiled_where_numba_is(tmp_path, has_numba, compiled):
    (tmp_path / "bin").mkdir()
    (tmp_path / ".smg").mkdir()
    python, calls = tmp_path / "bin" / "python", tmp_path / "calls"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
    *find_spec*) exit {int(not has_numba)} ;;
    "-m smg.vision") echo compiled >> {calls} ;;
esac
"""
    )
    python.chmod(0o755)
    script = f"set -euo pipefail; source {ROOT}/scripts/lib/env.sh; LOG={tmp_path}/log; prepare_kernels; echo whole"
    done = subprocess.run(
        ["bash", "-c", script], env={"SMG_VENV": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
    assert (calls.read_text().count("compiled") if calls.exists() else 0) == compiled
