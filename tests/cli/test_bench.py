"""smg-bench against small servers that answer well, badly and not at all."""

import asyncio
import json
import os

import pytest
from aiohttp import web

from smg.cli import bench, load

CHUNK = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}


def sse(*events):
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


GOOD = sse(CHUNK, CHUNK, CHUNK, LAST, USAGE, b"[DONE]")


class Server:
    """Answers every chat completion with the same bytes; remembers the bodies."""

    def __init__(self):
        self.answer = GOOD
        self.status = 200
        self.headers = {}
        self.bodies = []
        self.keys = []
        self.running = self.most_running = 0

    async def chat(self, request):
        self.bodies.append(await request.json())
        self.keys.append(request.headers.get("authorization"))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return web.Response(body=self.answer, status=self.status, headers=self.headers)

    async def models(self, request):
        return web.json_response({"object": "list", "data": [{"id": "first"}, {"id": "second"}]})


@pytest.fixture
async def server():
    state = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", state.chat)
    app.router.add_get("/v1/models", state.models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    state.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    yield state
    await runner.cleanup()


async def test_a_streamed_run_counts_every_request_once(server):
    report = await load.run(load.Plan(url=server.url, requests=7, concurrency=3, warmup=2, api_key="k"))
    assert (report.model, report.requests, report.completed, report.errors) == ("first", 7, 7, {})
    assert (report.prompt_tokens, report.output_tokens) == (63, 21)
    assert report.ttft_ms.p50 > 0
    assert len(server.bodies) == 9
    assert set(server.keys) == {"Bearer k"}
    assert 1 < server.most_running <= 3


async def test_prompts_differ_from_the_first_word_on(server):
    await load.run(load.Plan(url=server.url, requests=5, prompt_tokens=50))
    starts = {body["messages"][0]["content"].split(":")[0] for body in server.bodies}
    assert len(starts) == 5
    assert all(len(body["messages"][0]["content"].split()) == 48 for body in server.bodies)


async def test_a_buffered_run_takes_usage_from_the_answer(server):
    server.answer = json.dumps({"usage": {"prompt_tokens": 4, "completion_tokens": 6}}).encode()
    report = await load.run(load.Plan(url=server.url, requests=2, stream=False, model="m"))
    assert (report.completed, report.output_tokens, report.itl_ms) == (2, 12, None)
    assert server.bodies[0]["model"] == "m"
    assert "stream_options" not in server.bodies[0]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (sse(CHUNK, LAST), "stream ended early"),
        (sse(CHUNK, b"[DONE]"), "stream ended early"),
        (sse(CHUNK, {"error": {"code": "worker_stream_failed", "message": "x"}}), "error event worker_stream_failed"),
        (sse(CHUNK, {"error": "x"}), "error event"),
        (sse(b"{"), "DecodeError"),
    ],
)
async def test_a_broken_stream_is_an_error(server, answer, error):
    server.answer = answer
    report = await load.run(load.Plan(url=server.url, requests=2))
    assert report.errors == {error: 2}
    assert report.completed == 0


async def test_a_refusal_is_told_by_status_and_code(server):
    server.status, server.headers = 429, {"x-smg-error-code": "rate_limit_exceeded"}
    report = await load.run(load.Plan(url=server.url, requests=1))
    assert report.errors == {"HTTP 429 rate_limit_exceeded": 1}


async def test_the_process_is_measured_when_asked_for(server):
    report = await load.run(load.Plan(url=server.url, requests=2, pid=os.getpid()))
    assert report.usage.processes >= 1
    assert report.cpu_seconds_per_million_tokens is not None


async def test_a_process_that_does_not_exist_is_refused(server):
    with pytest.raises(load.LoadError, match="no process"):
        await load.run(load.Plan(url=server.url, requests=1, pid=2**22 + 1))


def test_nobody_there_is_a_clear_line_and_status_2(capsys):
    assert bench.main(["load", "--url", "http://127.0.0.1:9"]) == 2
    assert "nobody answers at http://127.0.0.1:9" in capsys.readouterr().err


def test_wrong_flags_are_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        bench.main(["load", "--concurrency", "0"])
    assert stopped.value.code == 2
    assert "must be at least 1" in capsys.readouterr().err


def test_micro_prints_one_json_object(tmp_path, capsys):
    folder = tmp_path / "benchmarks" / "micro"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(
        "def test_it(benchmark):\n"
        "    benchmark.extra_info['per_token'] = 4\n"
        "    benchmark.pedantic(len, ('x',), rounds=3)\n"
    )
    assert bench.micro(json=True, match=None, folder=folder) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["test_it"]["rounds"] == 3
    assert figures["test_it"]["median_us_per_token"] == pytest.approx(figures["test_it"]["median_us"] / 4, abs=1e-3)


def test_micro_says_which_extra_it_needs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "_MICRO_NEEDS", ("pytest", "no_such_module"))
    assert bench.micro(json=True, match=None, folder=tmp_path) == 2
    told = capsys.readouterr().err
    assert told == (
        "smg-bench: the micro benchmarks need no_such_module; "
        "install smg-server with the extra 'bench' (pip install -e '.[bench]')\n"
    )


def test_micro_outside_a_checkout_is_refused(tmp_path, capsys):
    assert bench.micro(json=True, match=None, folder=tmp_path / "none") == 2
    assert "need a checkout" in capsys.readouterr().err


def test_vision_runs_the_benchmark_of_a_checkout_and_passes_its_status_on(tmp_path, capfd):
    folder = tmp_path / "benchmarks"
    assert bench.vision(True, folder) == 2
    folder.mkdir()
    (folder / "vision.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(3)\n")
    assert bench.vision(True, folder) == 3
    assert "['--json']" in capfd.readouterr().out
