"""What the gateway asks of the gRPC library by its environment (smg/engines/transport/__init__.py)."""

import subprocess
import sys

import pytest

PROGRAM = """
import os
import smg.engines.transport
import grpc

channel = grpc.insecure_channel("127.0.0.1:1")
channel.close()
print(os.environ["GRPC_EXPERIMENTS"])
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)


def test_the_library_knows_the_experiment_that_is_switched_off():
    found = run(GRPC_VERBOSITY="ERROR")
    assert found.stdout == "-event_engine_client\n"
    assert "experiment" not in found.stderr.lower()


def test_such_a_complaint_would_be_seen():
    assert "Unknown experiment: no_such_thing" in run(GRPC_EXPERIMENTS="no_such_thing").stderr


@pytest.mark.parametrize("own", ["event_engine_client", ""])
def test_an_operators_own_choice_wins(own):
    assert run(GRPC_EXPERIMENTS=own).stdout == f"{own}\n"
