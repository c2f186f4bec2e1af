"""scripts/serve as a person uses it: start, paste the printed line, stop."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (Path(sys.prefix) / ".smg" / "project").exists(),
        reason="scripts/test makes the environment that scripts/serve would use; this one is another",
    ),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the printed line calls curl"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_until(stream, start):
    """Output up to the first line that begins with ``start``; pytest's time limit bounds the wait."""
    lines = []
    for line in stream:
        lines.append(line)
        if line.startswith(start):
            return "".join(lines)
    raise AssertionError("".join(lines))


@pytest.fixture
def served(tmp_path):
    environment = os.environ | {"SMG_VENV": sys.prefix, "SMG_STATE_DIR": str(tmp_path), "SMG_SHUTDOWN_SETTLE_SECS": "0"}
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(
            ["scripts/serve", "--port", str(free_port())],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        yield running
        if running.poll() is None:
            running.kill()
        running.wait()
        running.stdout.close()


def test_the_printed_line_streams_an_answer_and_sigterm_stops_cleanly(served):
    announced = read_until(served.stdout, "    -d ")
    assert re.search(r"set-up took [\d.]+ s, ready after [\d.]+ s more", announced)
    line = announced[announced.index("curl ") :]
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    events = [text[6:] for text in done.stdout.splitlines() if text.startswith("data: ")]
    assert events[-1] == "[DONE]", done
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices).strip()
    assert choices[-1]["finish_reason"] in ("stop", "length")

    served.send_signal(signal.SIGTERM)
    assert served.wait(30) == 0
