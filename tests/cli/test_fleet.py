"""``smg-server fleet`` against a control process."""

import asyncio
import contextlib
import json
import os
import sys

import pytest
from rich.console import Console

from smg._native.region import Region
from smg.cli.fleet import NoGateway, age, connect, main, plain, rows, shown
from smg.config.settings import FleetSettings, ServerSettings, Settings
from smg.control import frames
from smg.control.main import serve
from smg.core.errors import GatewayError

WORKER = {
    "id": "01941f29-0000-7000-8000-0000deadbeef",
    "url": "grpc://10.0.0.1:50051",
    "runtime_type": "sglang",
    "worker_type": "regular",
    "priority": 50,
    "models": ["qwen", "llama"],
    "status": "draining",
    "breaker": "half_open",
    "in_flight": 3,
    "waiting_tokens": 4096,
    "engine": {"kv_usage": 0.876},
    "last_probe": 990.0,
    "reason": "",
}


@contextlib.asynccontextmanager
async def gateway(state, *urls):
    region = Region.create(3, workers=4)
    settings = Settings(fleet=FleetSettings(worker_urls=urls), server=ServerSettings(state_dir=str(state)))
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, region, (), stop))
    path = frames.socket_path(str(state), region.boot_id)
    async with asyncio.timeout(10):
        while not path.is_socket():  # noqa: ASYNC110 - it comes from elsewhere
            await asyncio.sleep(0.01)
    try:
        yield f"{region.boot_id:016x}"
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)
        region.close()


async def command(*arguments):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "smg.cli.server", "fleet", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"COLUMNS": "80"},
    )
    out, errors = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode(), errors.decode()


async def test_json_and_table_of_a_running_gateway(tmp_path):
    async with gateway(tmp_path, "grpc://127.0.0.1:1"):
        status, out, _ = await command("--state-dir", str(tmp_path), "--json")
        [worker] = json.loads(out)["workers"]
        assert (status, worker["url"], worker["status"]) == (0, "grpc://127.0.0.1:1", "pending")
        status, out, _ = await command("--state-dir", str(tmp_path))
        assert status == 0
        header, line = out.splitlines()
        assert header.split()[:3] == ["url", "id", "contract"]
        assert line.split()[:2] == ["grpc://127.0.0.1:1", worker["id"][-8:]]


async def test_which_of_several_has_to_be_said(tmp_path):
    async with gateway(tmp_path) as one, gateway(tmp_path) as two:
        with pytest.raises(NoGateway, match="--gateway") as caught:
            await connect(str(tmp_path), None)
        assert {one, two} <= set(str(caught.value).replace(",", "").split())
        assert (await (await connect(str(tmp_path), two)).call("ping"))["boot_id"] == int(two, 16)


def test_without_a_gateway_it_says_so(tmp_path, capsys):
    left = tmp_path / "run" / "00000000000000aa" / "control.sock"
    left.parent.mkdir(parents=True)
    left.touch()
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"smg-server fleet: no gateway answers in {tmp_path}\n"
    assert main(["--state-dir", str(tmp_path), "--gateway", "zzz"]) == 1
    assert capsys.readouterr().err == f"smg-server fleet: no gateway zzz answers in {tmp_path}\n"


async def test_control_that_dies_meanwhile_is_an_error_and_no_traceback(tmp_path):
    async with gateway(tmp_path):
        client = await connect(str(tmp_path), None)
    with pytest.raises(GatewayError, match="does not answer"):
        await client.call("list")


def test_a_row_has_everything_about_a_worker():
    first, second = rows({"workers": [WORKER, WORKER | {"engine": None, "last_probe": None}]}, 1000.0)
    assert first == {
        "url": "grpc://10.0.0.1:50051",
        "id": "deadbeef",
        "contract": "sglang",
        "models": "qwen, llama",
        "status": "draining",
        "breaker": "half_open",
        "in flight": "3",
        "tokens": "4096",
        "KV use": "88%",
        "last probe": "10 s",
        "why": "",
    }
    assert (second["KV use"], second["last probe"]) == ("", "")


def test_roles_and_priorities_where_they_tell_workers_apart():
    decode = WORKER | {"worker_type": "decode", "priority": 10}
    first, second = rows({"workers": [WORKER, decode]}, 1000.0)
    assert (first["role"], first["priority"]) == ("regular", "50")
    assert (second["role"], second["priority"]) == ("decode", "10")


LONG = WORKER | {"url": "grpc://engine-17.inference.svc.cluster.local:50051", "reason": "connection refused " * 6}


@pytest.mark.parametrize("width", [80, 300])
def test_nothing_is_cut_however_narrow_the_terminal(width):
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(shown({"workers": [WORKER, LONG]}, 1000.0, width))
    text = console.export_text()
    assert ("│" in text) == (width == 300)
    whole = "".join(text.split())
    for cell in (LONG["url"], "deadbeef", "qwen,llama", "half_open", "connectionrefused" * 6):
        assert cell in whole
    assert "…" not in text


def test_plain_columns_stand_below_each_other():
    found = plain(rows({"workers": [WORKER, LONG]}, 1000.0)).splitlines()
    assert len({line.index(word) for line, word in zip(found, ("id", "deadbeef", "deadbeef"), strict=True)}) == 1
    assert found[1].endswith("10 s        -")
    assert plain([]) == "url  id  status"


@pytest.mark.parametrize(
    ("moment", "text"), [(None, ""), (1000.0, "0 s"), (1001.0, "0 s"), (881.0, "119 s"), (-6200.0, "2:00:00")]
)
def test_ages(moment, text):
    assert age(moment, 1000.0) == text


def test_a_ready_engine_whose_model_has_no_tokenizer_says_why():
    model = {"id": "qwen", "aliases": ["fast"], "tokenizer_dir": "", "tokenizer_error": "No space left on device"}
    served = model | {"id": "llama", "tokenizer_dir": "/bundles/1"}
    fleet = {"workers": [WORKER | {"status": "ready"}], "models": [model, served]}
    assert rows(fleet, 1000.0)[0]["why"] == "no tokenizer for qwen: No space left on device"
    fleet["workers"][0] = WORKER | {"status": "ready", "models": ["fast"], "reason": "slow"}
    assert rows(fleet, 1000.0)[0]["why"] == "slow; no tokenizer for qwen: No space left on device"
