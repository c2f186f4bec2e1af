"""The public API and the command, with the whole gateway behind them but no engine."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

from smg import Server
from smg.cli.server import main
from smg.config import Settings, SettingsError, load
from smg.config.settings import FleetSettings, ServerSettings, TelemetrySettings
from smg.server.run import check
from smg.server.sockets import StartError
from tests.server.server_harness import eventually


def quiet(tmp_path, **server) -> Settings:
    server = {"host": "127.0.0.1", "port": 0, "state_dir": str(tmp_path), "shutdown_settle_secs": 0.0, **server}
    return Settings(server=ServerSettings(**server), telemetry=TelemetrySettings(log_level="error"))


def test_a_gateway_runs_beside_the_program_and_stops(tmp_path):
    with Server(quiet(tmp_path)).start() as server:
        assert server.url == f"http://127.0.0.1:{server.port}"
        # Forks are clean copies only of a process without threads.
        assert "Threads:\t1\n" in Path(f"/proc/{server.pid}/status").read_text()
        with urllib.request.urlopen(f"{server.url}/health", timeout=20) as answer:
            assert answer.status == 200
        with pytest.raises(TimeoutError, match="insufficient healthy workers"):
            server.ready(timeout=0.5)
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=20) as answer:
            assert b"smg_http_requests_total" in answer.read()
    assert server.stop() == 0
    with pytest.raises(RuntimeError, match="exit code 0"):
        server.ready(timeout=1)


def test_a_gateway_speaks_tls(tmp_path, certificate):
    with Server(quiet(tmp_path, **certificate)).start() as server:
        assert server.url.startswith("https://")
        with pytest.raises(TimeoutError, match="insufficient healthy workers"):
            server.ready(timeout=1.5)


def test_a_port_in_use_is_a_start_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(StartError, match="already in use"):
        Server(quiet(tmp_path, port=other.getsockname()[1])).start()


def test_a_gateway_ends_with_the_program_that_started_it(tmp_path):
    script = (
        "import sys, os, msgspec; from smg import Server, Settings\n"
        "server = Server(msgspec.json.decode(sys.argv[1], type=Settings)).start()\n"
        "print(server.pid, flush=True); os._exit(0)"
    )
    settings = msgspec.json.encode(quiet(tmp_path)).decode()
    out = subprocess.run([sys.executable, "-c", script, settings], capture_output=True, check=True, text=True)
    pid = int(out.stdout)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), 10)


def test_the_command_says_where_it_listens_and_drains_on_SIGTERM(tmp_path):
    command = [sys.executable, "-m", "smg.cli.server", "--host", "127.0.0.1", "--port", "0", "--workers", "2"]
    command += ["--state-dir", str(tmp_path), "--shutdown-settle-secs", "0", "--log-json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert "listening on http://127.0.0.1:" in line
        assert line.endswith("with 2 workers\n")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    messages = [json.loads(each)["message"] for each in errors.splitlines()]
    assert any("--api-key" in message for message in messages)
    assert "control ended (exit code 0)" in messages


def test_the_command_prints_all_problems_and_exits_with_2(capsys):
    assert main(["--port", "99999", "--policy", "luck", "--api-key", " k "]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all(line.startswith("smg-server: ") for line in errors)


def test_the_command_says_in_one_line_that_the_port_is_in_use(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "smg.cli.server", "--host", "127.0.0.1", "--port", str(port)]
        done = subprocess.run([*command, "--state-dir", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"smg-server: port {port} on 127.0.0.1 is already in use; choose another with --port\n"


def test_what_would_fail_in_every_process_is_found_first(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a certificate")
    settings = Settings(
        server=ServerSettings(tls_cert_path=str(file), tls_key_path=str(file), state_dir=str(file / "below")),
        fleet=FleetSettings(backend="abacus"),
    )
    tls, directory, backend = check(settings)
    assert "--tls-cert-path" in tls
    assert "--state-dir" in directory
    assert "'abacus' is not one of" in backend
    with pytest.raises(SettingsError):
        Server(settings).run()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--reasoning-parser", "qwen4"], "--reasoning-parser: 'qwen4' is none of"),
        (["--tool-call-parser", "yyy"], "--tool-call-parser: 'yyy' is none of"),
        (["--allowed-media-networks", "foo"], "--allowed-media-networks: not a network: 'foo'"),
        (["--worker-urls", "grpc://gpu-1"], "--worker-urls: 'grpc://gpu-1': host and port are required"),
        (["--worker-urls", "http://gpu-1:abc"], "--worker-urls: 'http://gpu-1:abc': a host and a valid port"),
        (["--prefill", "grpc://a:1", "8998", "--decode", "grpc://b"], "--decode: 'grpc://b': host and port"),
        (["--allowed-local-media-path", "/nowhere/at/all"], "--allowed-local-media-path: '/nowhere/at/all' is no"),
        (["--allowed-media-domains", "https://a.example/x"], "--allowed-media-domains: 'https://a.example/x' is not"),
        (["--request-id-headers", "my id"], "--request-id-headers: 'my id' is not a header's name"),
    ],
)
def test_names_and_addresses_that_cannot_be_are_wrong_settings(tmp_path, capsys, flags, words):
    assert main(["--port", "0", "--state-dir", str(tmp_path), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"smg-server: {words}")


def test_good_names_and_addresses_are_taken(tmp_path):
    flags = ["--worker-urls", "grpc://a:1", "http://b:2@0", "https://c/base", "ipc:///run/x", "zmq://127.0.0.1:1",
             "d:1", "[::1]:2", "--allowed-media-domains", "a.example", "[::1]", "--allowed-media-networks",
             "10.0.0.0/8", "--allowed-local-media-path", str(tmp_path), "--reasoning-parser", "qwen3",
             "--prefill", "grpc://e:1", "none", "--decode", "http://f:1"]  # fmt: skip
    assert check(load(["--state-dir", str(tmp_path), *flags], {})) == []


def test_discovery_of_pods_without_its_package_ends_the_start(tmp_path, monkeypatch):
    flags = ["--state-dir", str(tmp_path), "--service-discovery", "--selector", "app=vllm"]
    assert check(load(flags, {})) == []
    # As Python marks what cannot be imported.
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    (problem,) = check(load(flags, {}))
    assert "pip install 'smg-server[kubernetes]'" in problem
