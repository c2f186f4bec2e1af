"""Real processes: forked, killed, replaced, drained. Control is a sleeper, the workers serve the small application."""

import http.client
import os
import signal
import socket
import sys
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from smg._native.region import Region
from smg.config import Settings
from smg.server.roles import FIRST_DELAY, LONGEST_DELAY, STARTED_SECONDS, STEADY_SECONDS, Role
from smg.server.sockets import StartError, free_port, open_listeners
from tests.server.server_harness import Gateway, eventually, sleeping_control


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def up(gateway: Gateway) -> list[int]:
    """Wait until all processes are there and answer; returns their ids (control first)."""
    return eventually(lambda: all(gateway.pids()) and gateway.ask("GET", "/health")[0] == 200 and gateway.pids())


def test_both_workers_get_connections(gateway):
    gate = gateway(workers=2)
    _, one, two = up(gate)
    seen = {int(gate.ask("GET", "/pid")[1]) for _ in range(60)}
    assert seen == {one, two}


def test_processes_lead_sessions_of_their_own(gateway):
    gate = gateway(workers=1)
    for pid in up(gate):
        assert os.getsid(pid) == pid


@pytest.mark.parametrize("row", [0, 1, 2], ids=["control", "worker 1", "worker 2"])
def test_a_killed_process_is_undone_and_back(gateway, row):
    gate = gateway(workers=2)
    before = up(gate)
    gate.region.inflight_add(row, 3, 5, 500)
    gate.region.requests_add(row, 5)
    os.kill(before[row], signal.SIGKILL)
    eventually(lambda: gate.pids()[row] not in (0, before[row]))
    assert gate.region.inflight(3) == (0, 0)
    assert gate.region.requests_total() == 0
    after = up(gate)
    assert [pid for i, pid in enumerate(after) if i != row] == [pid for i, pid in enumerate(before) if i != row]
    restarts = {key: value for key, _, value in gate.region.read_series() if b"restarts" in key}
    assert list(restarts.values()) == [1]


def test_connections_are_not_refused_while_a_worker_is_replaced(gateway):
    gate = gateway(workers=1)
    _, worker = up(gate)
    for _ in range(3):
        os.kill(worker, signal.SIGKILL)
        status, body = gate.ask("GET", "/pid")
        assert status == 200
        assert int(body) != worker
        worker = int(body)


def test_when_the_supervisor_is_killed_everything_dies(gateway):
    gate = gateway(workers=2)
    pids = up(gate)
    gate.signal(signal.SIGKILL)
    assert gate.wait() == -signal.SIGKILL
    eventually(lambda: not any(map(running, pids)))


def test_a_child_that_cannot_be_started_ends_the_gateway(gateway):
    def failing(settings, region, urls):
        raise SystemExit(7)

    assert gateway(control=failing).wait() == 1


def test_a_child_that_keeps_failing_later_is_retried_with_back_off(gateway, monkeypatch):
    monkeypatch.setattr("smg.server.roles.STARTED_SECONDS", 0.0)

    def failing(settings, region, urls):
        region.worker_add(0, 0, 1)
        raise SystemExit(7)

    gate = gateway(control=failing)
    eventually(lambda: gate.region.worker_get(0, 0) >= 3)
    assert gate.ask("GET", "/health")[0] == 200
    assert gate.region.worker_get(0, 0) < 50


def test_back_off_starts_at_once_and_stays_short(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("smg.core.clock.monotonic", lambda: now[0])
    role = Role("x", "worker", 1, lambda: None)
    delays = []
    for _ in range(7):
        role.start()
        delays.append(role.ended())
    assert delays == [0.0, FIRST_DELAY, 0.5, 1.0, LONGEST_DELAY, LONGEST_DELAY, LONGEST_DELAY]
    role.start()
    now[0] += STEADY_SECONDS
    assert role.ended() == 0.0


@pytest.mark.parametrize(
    ("ends", "hopeless"),
    [
        (["exit code 1"] * 2, False),
        (["exit code 1"] * 3, True),
        (["exit code 1", "SIGKILL", "exit code 1", "exit code 1"], False),
        (["exit code 0"] * 5, False),
    ],
)
def test_only_a_child_that_always_failed_by_itself_is_hopeless(ends, hopeless):
    role = Role("x", "worker", 1, lambda: None)
    for how in ends:
        role.start()
        role.ended(how)
    assert role.hopeless is hopeless


def test_a_child_that_once_ran_is_never_hopeless(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("smg.core.clock.monotonic", lambda: now[0])
    role = Role("x", "worker", 1, lambda: None)
    role.start()
    now[0] += STARTED_SECONDS
    for _ in range(9):
        role.ended("exit code 1")
        role.start()
    assert not role.hopeless


def test_SIGTERM_ends_an_idle_gateway_cleanly(gateway):
    gate = gateway(workers=2)
    pids = up(gate)
    gate.signal(signal.SIGTERM)
    assert gate.wait() == 0
    assert not any(map(running, pids))


def test_SIGHUP_is_ignored(gateway):
    gate = gateway(workers=1)
    pids = up(gate)
    for pid in (gate.pid, *pids):
        os.kill(pid, signal.SIGHUP)
    assert up(gate) == pids


class Reading(threading.Thread):
    """Reads one answer in a thread; ``head`` is set when its status has arrived."""

    def __init__(self, gate: Gateway, path: str) -> None:
        super().__init__(daemon=True)
        self.head = threading.Event()
        self.body = b""
        self.failure: Exception | None = None
        self._gate = gate
        self._path = path
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._gate.port, timeout=20)
        try:
            connection.request("GET", self._path)
            answer = connection.getresponse()
            self.head.set()
            self.body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.failure = error
        finally:
            connection.close()


def test_RL_05_a_rolling_update_cuts_no_stream(gateway):
    gate = gateway(workers=2, shutdown_settle_secs=1.0, shutdown_grace_period_secs=20.0)
    up(gate)
    streams = [Reading(gate, "/stream?seconds=2.5") for _ in range(20)]
    assert all(stream.head.wait(10) for stream in streams)
    gate.signal(signal.SIGTERM)
    # Readiness fails at once on every worker, liveness stays, and requests are served while it settles.
    eventually(lambda: {gate.ask("GET", "/readiness")[0] for _ in range(10)} == {503}, 0.8)
    assert gate.ask("GET", "/health")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=5)
    connection.request("GET", "/pid")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    # Then nothing new is accepted.
    eventually(lambda: refused(gate.port))
    for stream in streams:
        stream.join(20)
        assert stream.failure is None
        assert stream.body.endswith(b"done\n")
    assert gate.wait() == 0


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except ConnectionRefusedError:
        return True
    return False


def test_RL_05_at_the_limit_streams_get_an_error_event(gateway):
    gate = gateway(workers=1, shutdown_grace_period_secs=0.5)
    up(gate)
    stream = Reading(gate, "/stream?seconds=60")
    assert stream.head.wait(10)
    gate.signal(signal.SIGTERM)
    assert gate.wait() == 0
    stream.join(5)
    assert stream.body.endswith(b"error shutdown\n")


def test_RL_05_a_second_signal_exits_fast(gateway):
    gate = gateway(workers=2, shutdown_settle_secs=60.0)
    pids = up(gate)
    gate.signal(signal.SIGINT)
    eventually(lambda: gate.ask("GET", "/readiness")[0] == 503)
    gate.signal(signal.SIGINT)
    assert gate.wait(5) == 1
    assert not any(map(running, pids))


def test_a_worker_that_is_replaced_while_draining_knows(gateway):
    gate = gateway(workers=1, shutdown_settle_secs=60.0)
    _, worker = up(gate)
    gate.signal(signal.SIGTERM)
    eventually(lambda: gate.ask("GET", "/readiness")[0] == 503)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: gate.pids()[1] not in (0, worker))
    assert gate.ask("GET", "/readiness")[0] == 503


def test_the_end_of_the_lifeline_drains(gateway):
    reader, writer = os.pipe()
    gate = gateway(lifeline=(reader, writer))
    os.close(reader)
    up(gate)
    os.close(writer)
    assert gate.wait() == 0


def scrape(gate: Gateway) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    out = {}
    for family in text_string_to_metric_families(gate.ask("GET", "/metrics")[1].decode()):
        for sample in family.samples:
            if family.type == "counter" or sample.name.endswith(("_bucket", "_count", "_sum")):
                out[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return out


def test_OB_02_counters_never_decrease_over_a_kill(gateway):
    gate = gateway(workers=2)
    pids = up(gate)
    seen: dict = {}

    def look() -> None:
        now = scrape(gate)
        for key, value in seen.items():
            assert now.get(key, 0) >= value, key
        seen.update(now)

    for round_ in range(6):
        for _ in range(20):
            assert gate.ask("GET", "/pid")[0] == 200
        look()
        if round_ == 2:
            os.kill(pids[1], signal.SIGKILL)
            look()
            eventually(lambda: gate.pids()[1] not in (0, pids[1]))
    look()
    assert seen["smg_http_requests_total", (("method", "GET"), ("path", "/pid"))] == 120
    assert gate.region.requests_total() == 0


def test_the_embedded_engine_is_a_supervised_child_too(gateway, tmp_path, monkeypatch):
    """Its command runs with a chosen port, its URL goes to control, and it is replaced when it dies."""
    told = tmp_path / "engine"
    script = f"import os, sys, time; open({str(told)!r}, 'a').write(str(os.getpid()) + chr(10)); time.sleep(60)"
    monkeypatch.setattr("smg.server.engine_child.EngineCommand.command", lambda self: [sys.executable, "-c", script])

    def control(settings: Settings, region: Region, urls) -> None:
        (tmp_path / "urls").write_text(" ".join(urls))
        sleeping_control(settings, region, urls)

    gate = gateway(control=control, embedded={"embedded_engine": True, "embedded_port": 12345})
    up(gate)
    first = int(eventually(lambda: told.read_text().split()[0]))
    assert (tmp_path / "urls").read_text() == "grpc://127.0.0.1:12345"
    os.kill(first, signal.SIGKILL)
    second = int(eventually(lambda: [*told.read_text().split(), "", ""][1]))
    gate.signal(signal.SIGTERM)
    assert gate.wait() == 0
    assert not running(first)
    assert not running(second)


def test_the_engines_command_line():
    from smg.config.settings import EmbeddedSettings
    from smg.server.engine_child import EngineCommand

    engine = EngineCommand(EmbeddedSettings(embedded_model="m.gguf", embedded_args=("--threads", "2")), "/state")
    command = engine.command()
    assert command[command.index("--state-dir") + 1] == "/state"
    assert command[1:4] == ["-m", "smg.cli.engine", "llama"]
    assert command[-4:] == ["--model", "m.gguf", "--threads", "2"]
    assert command[command.index("--port") + 1] == str(engine.port)
    assert engine.url == f"grpc://127.0.0.1:{engine.port}"


def test_a_port_in_use_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StartError, match=f"port {port} on 127.0.0.1 is already in use"):
            open_listeners("127.0.0.1", port, 2)


def test_another_gateway_of_the_same_user_does_not_share_the_port():
    mine = open_listeners("127.0.0.1", 0, 2)
    port = mine[0].getsockname()[1]
    assert mine[1].getsockname()[1] == port
    with pytest.raises(StartError, match="already in use"):
        open_listeners("127.0.0.1", port, 1)
    for listener in mine:
        listener.close()
    for listener in open_listeners("127.0.0.1", port, 1):
        listener.close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.77"])
def test_an_address_that_is_not_ours_is_one_clear_line(host):
    with pytest.raises(StartError) as caught:
        open_listeners(host, 0, 1)
    assert host in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_free_port_is_free():
    socket.create_server(("127.0.0.1", free_port())).close()
