"""The shell scripts: they explain themselves, refuse what they do not know, and their steps behave."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def run(*command, **variables):
    return subprocess.run(
        command, cwd=ROOT, env=ENV | variables, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )


def library(code, venv):
    """Run ``code`` after sourcing the library, with logs and stamps under ``venv``."""
    start = "set -euo pipefail; source scripts/lib/env.sh; LOG=$VENV.log\n"
    return run("bash", "-c", start + code, SMG_VENV=str(venv))


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / "scripts/lib/env.sh", ROOT / ".ci/run"], ids=lambda p: p.name)
def test_every_script_parses(script):
    assert run("bash", "-n", str(script)).stderr == ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_is_executable_and_explains_itself(script):
    assert os.access(script, os.X_OK)
    done = run(str(script), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: scripts/{script.name}")


def test_serve_says_that_flags_go_to_the_server():
    assert "All flags go to smg-server" in run("scripts/serve", "--help").stdout


def test_test_refuses_unknown_arguments():
    done = run("scripts/test", "--fats")
    assert done.returncode == 2
    assert "unknown argument --fats" in done.stderr


def test_real_vllm_says_what_it_takes():
    text = " ".join(run("scripts/test", "--help").stdout.split())
    assert "--real-vllm only against a real vLLM" in text
    assert "build/real-vllm" in text


def test_ci_hands_its_arguments_and_status_on():
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert run(".ci/run", "--fats").returncode == 2


def test_a_failing_step_shows_the_end_of_its_log(tmp_path):
    done = library("step 'Counting' bash -c 'seq 100; exit 3'; echo not reached", tmp_path / "venv")
    assert done.returncode == 1
    assert "error: Counting failed" in done.stderr
    assert done.stderr.splitlines()[-1] == "100"
    assert "\n70\n" not in done.stderr
    assert done.stdout == ""


def test_a_good_step_tells_its_time_and_hides_its_output(tmp_path):
    done = library("step 'Counting' seq 3", tmp_path / "venv")
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == "==> Counting"
    assert "done in" in done.stderr
    assert done.stdout == ""


def test_a_stamp_fits_until_its_sources_change(tmp_path):
    source = tmp_path / "source"
    source.write_text("one")
    code = f"""
        PY=python3; mkdir -p "$STAMPS"
        before=$(fingerprint {source})
        fresh it "$before" && echo wrong
        stamp it "$before"
        fresh it "$(fingerprint {source})" && echo fresh
        echo two > {source}
        fresh it "$(fingerprint {source})" || echo stale
    """
    assert library(code, tmp_path / "venv").stdout.split() == ["fresh", "stale"]


def test_a_folder_that_is_no_environment_is_never_emptied(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    done = library("make_venv", tmp_path)
    assert done.returncode == 1
    assert "is not a virtual environment" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


def test_an_old_interpreter_is_refused(tmp_path):
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run("bash", "-c", "source scripts/lib/env.sh; find_python", SMG_PYTHON=str(old))
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
