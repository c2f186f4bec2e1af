"""What scripts/serve says when the server is ready."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "scripts" / "lib" / "announce.py"
spec = importlib.util.spec_from_file_location("announce", PATH)
announce = importlib.util.module_from_spec(spec)
spec.loader.exec_module(announce)


@pytest.fixture
def server():
    """Answers from a dict of path -> list of (status, body); the last one stays."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.keys.append(self.headers["authorization"])
            left = server.answers.get(self.path, [(404, b"")])
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers = {}
    server.keys = []
    server.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def process():
    """A process that stands for the server."""
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield running
    running.stdin.close()
    running.wait()


def say(server, pid):
    command = [sys.executable, str(PATH), "--pid", str(pid), "--set-up-ms", "41250", "--", "--port", str(server.port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ([], "http://127.0.0.1:30000"),
        (["--port", "8080"], "http://127.0.0.1:8080"),
        (["--port=1", "--host", "0.0.0.0", "--port", "2"], "http://127.0.0.1:2"),
        (["--workers", "2", "--host", "::"], "http://[::1]:30000"),
        (["--tls-cert-path", "c.pem", "--tls-key-path", "k.pem"], "https://127.0.0.1:30000"),
    ],
)
def test_the_address_comes_from_the_flags(flags, url):
    assert announce.Target(flags).url == url


def test_the_curl_line_is_valid_shell_and_json_for_the_first_model(server):
    server.answers = {"/v1/models": [(200, b'{"data":[{"id":"it\'s mine"},{"id":"other"}]}')]}
    target = announce.Target(["--port", str(server.port)])
    line = announce.curl_line(target).replace("curl", "printf '%s\\n'", 1)
    words = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.splitlines()
    body = json.loads(words[-1])
    assert body["model"] == "it's mine"
    assert body["stream"] is True
    assert f"{target.url}/v1/chat/completions" in words


@pytest.mark.parametrize(
    ("flags", "environment"), [(["--api-key", "abc"], ""), ([], "abc other"), (["--api-key=abc"], "other")]
)
def test_with_a_key_the_model_is_asked_for_with_it_and_the_line_does_not_show_it(
    server, monkeypatch, flags, environment
):
    monkeypatch.setenv("SMG_API_KEY", environment)
    server.answers = {"/v1/models": [(200, b'{"data":[{"id":"mine"}]}')]}
    line = announce.curl_line(announce.Target(["--port", str(server.port), *flags]))
    assert server.keys == ["Bearer abc"]
    assert '"model": "mine"' in line
    assert "$SMG_API_KEY" in line
    assert "abc" not in line


def test_a_server_that_was_there_before_is_not_taken_for_ours(server, process):
    server.answers = {"/liveness": [(200, b"OK")], "/readiness": [(200, b"{}")]}
    done = say(server, process.pid)
    assert done.returncode == 1
    assert "something else already answers" in done.stderr
    assert done.stdout == ""


def test_readiness_is_waited_for(monkeypatch, capsys):
    """The server comes up later than the announcer, refuses at first, and is announced once."""
    code = (
        "import http.server, socketserver, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    seen = 0\n"
        "    def do_GET(self):\n"
        "        H.seen += 1\n"
        "        self.send_response(200 if H.seen > 2 else 503); self.end_headers()\n"
        "    def log_message(self, *_): pass\n"
        "sys.stdin.readline()\n"
        "with socketserver.TCPServer(('127.0.0.1', int(sys.argv[1])), H) as s: s.serve_forever()\n"
    )
    port, looks = free_port(), []
    late = subprocess.Popen([sys.executable, "-c", code, str(port)], stdin=subprocess.PIPE)

    def pause(seconds):
        """Let the server listen once the announcer has looked in vain."""
        if not looks:
            late.stdin.write(b"\n")
            late.stdin.flush()
        looks.append(seconds)
        threading.Event().wait(seconds)

    monkeypatch.setattr(announce.time, "sleep", pause)
    monkeypatch.setattr(
        sys, "argv", ["announce", "--pid", str(late.pid), "--set-up-ms", "41250", "--", "--port", str(port)]
    )
    try:
        assert announce.main() == 0
    finally:
        late.kill()
        late.wait()
        late.stdin.close()
    out = capsys.readouterr().out
    # Nobody there, twice 503, ready.
    assert len(looks) >= 3
    assert out.count("is ready") == 1
    assert "set-up took 41.2 s" in out
    assert '"model": "smollm2-135m-instruct"' in out


def free_port():
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_address[1]


def test_the_announcer_ends_with_the_server(process):
    process.stdin.close()
    process.wait()
    command = [
        sys.executable,
        str(PATH),
        "--pid",
        str(process.pid),
        "--set-up-ms",
        "1",
        "--",
        "--port",
        str(free_port()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stdout == ""


def test_a_zombie_is_not_running():
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert not announce.running(child)
    finally:
        os.waitpid(child, 0)


def test_a_keyed_server_gets_a_curl_line_with_a_key_to_fill_in(server):
    server.answers = {"/v1/models": [(401, b"{}")]}
    line = announce.curl_line(announce.Target(["--port", str(server.port)]))
    assert "authorization: Bearer $SMG_API_KEY" in line


@pytest.mark.parametrize(
    ("body", "text"), [(b'{"reason": "draining"}', "draining"), (b"", ""), (b"[]", ""), (b"{}", "")]
)
def test_the_reason_of_a_readiness_answer(body, text):
    assert announce.reason(body) == text
