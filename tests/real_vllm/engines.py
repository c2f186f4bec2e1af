"""Real vLLM engines on the CPU, started as operators start them (spec engine-contract 7)."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

# A model of 135M parameters loads in about a minute on two busy cores.
START_SECS = 400.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def vllm(folder: Path, model: Path, name: str) -> Iterator[str]:
    """Run one engine and yield its address once it says that it serves; its output goes to ``NAME.log``."""
    port = free_port()
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "SMG_VLLM_SERVICER_WARMUP": "off",
        # Threads that spin for each other starve on busy cores.
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    environment.pop("PYTHONPATH", None)
    events = '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "ipc://%s"}' % (folder / f"{name}.ipc")
    command = [str(folder / "venv" / "bin" / "python"), "-m", "vllm.entrypoints.grpc_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--max-num-seqs", "8"]
    command += ["--enforce-eager", "--block-size", "32", "--kv-events-config", events]
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder)
        try:
            _wait(process, port, folder / f"{name}.log")
            yield f"grpc://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECS
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while time.monotonic() < end:
            if process.poll() is not None:
                break
            with contextlib.suppress(grpc.RpcError):
                answer = health.Check(health_pb2.HealthCheckRequest(), timeout=2)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            time.sleep(0.5)
    raise AssertionError(f"vLLM did not start:\n{log.read_text(errors='replace')[-3000:]}")
