"""The engine core over ZeroMQ: handshake, requests and outputs by position, aborts, and engines that die."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from smg.core.backends import EngineRequest
from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import Constraint, Limits, Logprobs, Sampling
from smg.engines.zmq import source as source_module
from smg.engines.zmq.address import clear, parse, prepare
from smg.engines.zmq.driver import ZmqDriver
from smg.engines.zmq.frames import Told
from smg.engines.zmq.wire import VllmWire
from tests.engines.zmq.core import ID, PARAMS, MockCore
from tests.engines.zmq.rebound import rebound

LABELS = {"model_path": "/models/org/m", "max_model_len": "128"}


def request(**changes) -> EngineRequest:
    fields = {"id": "r", "ids": [1, 2, 3], "sampling": Sampling(), "limits": Limits(64), "stop_ids": (9,)}
    return EngineRequest(**(fields | changes))


class Place:
    """Control's driver, a worker's driver, and the engine core between them."""

    def __init__(self, control: ZmqDriver, worker: ZmqDriver, core: MockCore, loads: list) -> None:
        self.control, self.worker, self.core, self.loads = control, worker, core, loads


def free_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"zmq://127.0.0.1:{probe.getsockname()[1]}"


@contextlib.asynccontextmanager
async def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    url, loads = free_url(), []
    control = ZmqDriver(url, 0, 2, LABELS)
    worker = ZmqDriver(url, 1, labels=LABELS, on_load=loads.append)
    try:
        async with MockCore(parse(url).handshake) as core:
            await until(lambda: control._handshake.facts is not None)
            yield Place(control, worker, core, loads)
    finally:
        await worker.close()
        await control.close()


@pytest.fixture
async def at(tmp_path, monkeypatch):
    async with place(tmp_path, monkeypatch) as made:
        yield made


async def until(condition, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - engines in tests have no event for it
            await asyncio.sleep(0.005)


async def drain(source) -> list:
    batches = []
    while fresh := await source.next():
        batches += fresh
    return batches


def ids(batches, choice=0) -> list[int]:
    return [token for batch in batches if batch.index == choice for token in batch.ids]


async def run(at, **changes) -> list:
    return await drain(await at.worker.open(RequestContext("q"), request(**changes)))


class TestHandshake:
    async def test_the_engine_learns_the_sockets_of_every_process_and_tells_of_itself(self, at):
        assert len(at.core.addresses["inputs"]) == len(at.core.addresses["outputs"]) == 2
        assert at.core.addresses["coordinator_input"] is None
        info = await at.control.info()
        assert (info.model_id, info.context_length, info.eos_ids) == ("m", 128, ())
        assert (info.labels["block_size"], info.labels["version"]) == ("16", "0.11")
        assert await at.control.health(1.0)

    async def test_an_engine_that_is_not_there(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        driver = ZmqDriver(free_url(), 0, 2, LABELS)
        for ask in (driver.info(), driver.health(1.0)):
            with pytest.raises(GatewayError) as caught:
                await ask
            assert (caught.value.code, caught.value.status, caught.value.worker_fault) == ("worker_failed", 503, True)
        await driver.close()

    async def test_a_model_has_to_be_named(self, at):
        at.control.relabel({})
        with pytest.raises(GatewayError, match="--model-path"):
            await at.control.info()

    async def test_a_control_process_that_starts_later_goes_on(self, at):
        await at.control.close()
        again = await rebound(lambda: ZmqDriver(at.control.url, 0, 2, LABELS))
        assert (await again.info()).context_length == 128

        async def connected() -> bool:
            with contextlib.suppress(GatewayError):
                return await again.health(1.0)
            return False

        async with asyncio.timeout(5):
            while not await connected():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert ids(await run(at)) == [5, 6, 7]
        await again.close()

    async def test_an_engine_that_starts_again_is_greeted_again(self, at):
        await at.core.__aexit__()
        async with MockCore(parse(at.control.url).handshake, lambda add: [8]) as core:
            await until(lambda: at.control._handshake.facts is not None)
            assert ids(await run(at)) == [8]
            assert len(core.adds) == 1

    async def test_what_is_no_greeting_is_passed_over(self, at):
        for frames in ([b"\x00\x00"], [b"\x00\x00", b"x", b"y"], [b"\x07\x00", b"\x80"], [b"\x00\x00", b"\xc1"]):
            at.control._handshake._hear(frames)
            at.control._handshake.greeted(frames)
        assert (await at.control.info()).context_length == 128


class TestGenerations:
    async def test_ids_counts_and_end(self, at):
        batches = await run(at)
        assert ids(batches) == [5, 6, 7]
        assert [batch.finish for batch in batches if batch.finish] == ["stop"]
        assert (batches[0].prompt_tokens, batches[0].cached_tokens) == (3, 1)
        add = at.core.adds[0]
        assert (add[ID], add[1], add[11], add[16]) == ("r", [1, 2, 3], 1, "r")
        # EOS is among the stop ids: the engine core does not know it.
        assert add[PARAMS]["stop_token_ids"] == add[PARAMS]["_all_stop_token_ids"] == [9]
        assert at.core.aborts == []

    async def test_a_stop_id_and_the_limit(self, at):
        at.core.tokens = lambda add: [5, 9, 6]
        last = (await run(at))[-1]
        assert (last.finish, last.matched_stop) == ("stop", 9)
        assert (await run(at, id="r2", limits=Limits(1)))[-1].finish == "length"

    async def test_without_a_limit_the_context_is(self, at):
        await run(at, limits=Limits())
        assert at.core.adds[0][PARAMS]["max_tokens"] == 128 - 3

    async def test_several_choices_are_requests_of_their_own(self, at):
        at.core.tokens = lambda add: [int(add[ID][-1]) + 10, 4]
        batches = await run(at, n=3, sampling=Sampling(seed=7))
        assert [ids(batches, choice) for choice in range(3)] == [[10, 4], [11, 4], [12, 4]]
        assert [(add[ID], add[PARAMS]["seed"]) for add in at.core.adds] == [("r-0", 7), ("r-1", 8), ("r-2", 9)]

    @pytest.mark.parametrize("aux", [False, True])
    async def test_log_probabilities_inline_and_in_frames_of_their_own(self, at, aux):
        at.core.aux = aux
        batches = await run(at, logprobs=Logprobs(2, prompt=True))
        rows = [row for batch in batches for row in batch.logprobs or ()]
        assert rows[0] == TokenLogprobs(5, -0.5, ((5, -0.5), (6, -1.5)))
        assert [row.token for row in rows] == [5, 6, 7]
        prompt = batches[0].prompt_logprobs
        assert [(row.token, row.logprob) for row in prompt] == [(1, None), (2, -0.5), (3, -0.5)]

    @pytest.mark.parametrize(
        ("constraint", "expected"),
        [
            (Constraint("json_schema", "{}"), {"json": "{}", "_backend": "guidance"}),
            (Constraint("json_object"), {"json_object": True, "_backend": "guidance"}),
            (Constraint("choice", choices=("a", "b")), {"choice": ["a", "b"], "_backend": "guidance"}),
            (Constraint("structural_tag", "{}"), {"structural_tag": "{}", "_backend": "xgrammar"}),
        ],
    )
    async def test_structured_output(self, at, constraint, expected):
        await run(at, constraint=constraint)
        assert at.core.adds[0][PARAMS]["structured_outputs"] == expected

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"ids": []}, "empty_input"),
            ({"ids": [1] * 128}, "context_length_exceeded"),
            ({"ids": [-1]}, "invalid_value"),
            ({"ids": [50], "vocab_size": 50}, "invalid_value"),
            ({"lora": "x"}, "unsupported_parameter"),
            ({"sampling": Sampling(temperature=-1.0)}, "invalid_value"),
        ],
    )
    async def test_what_could_kill_the_engine_never_reaches_it(self, at, changes, code):
        with pytest.raises(GatewayError) as caught:
            await run(at, **changes)
        assert (caught.value.code, caught.value.status) == (code, 400)
        assert at.core.adds == []

    async def test_many_at_a_time(self, at):
        at.core.tokens = lambda add: [int(add[ID][1:]) + 10] * 5
        found = await asyncio.gather(*(run(at, id=f"r{number}") for number in range(100)))
        assert [ids(batches) for batches in found] == [[number + 10] * 5 for number in range(100)]
        assert at.worker._sources == {}

    async def test_loads_come_with_the_steps(self, at):
        await run(at)
        assert (at.loads[0].running, at.loads[0].waiting, at.loads[0].usage) == (1, 3, 0.5)


class TestEnds:
    async def test_RL_04_cancelling_sends_one_abort_of_all_choices_that_run(self, at):
        at.core.stall = True
        ctx = RequestContext("q")
        source = await at.worker.open(ctx, request(n=2))
        await until(lambda: len(at.core.adds) == 2)
        ctx.cancel.cancel("client_disconnect")
        await source.cancel("stop")
        with pytest.raises(GatewayError) as caught:
            await source.next()
        assert caught.value.code == "client_disconnected"
        await until(lambda: at.core.aborts == ["r-0", "r-1"])
        assert at.worker._sources == {}

    async def test_a_stop_of_ours_is_no_error(self, at):
        at.core.tokens = lambda add: [5] * 60
        at.core.delay = 0.01
        source = await at.worker.open(RequestContext("q"), request())
        await source.next()
        await source.cancel("stop")
        assert await source.next() == []
        await until(lambda: at.core.aborts == ["r"])

    @pytest.mark.parametrize("finish", [2, 3])
    async def test_an_engine_that_gives_up(self, at, finish):
        at.core.finish = finish
        with pytest.raises(GatewayError) as caught:
            await run(at)
        assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)

    async def test_the_word_of_a_dying_engine_fails_all_that_runs(self, at):
        at.core.stall = True
        sources = [await at.worker.open(RequestContext("q"), request(id=f"r{number}")) for number in range(3)]
        await at.core.send(1, b"ENGINE_CORE_DEAD")
        for source in sources:
            with pytest.raises(GatewayError) as caught:
                await source.next()
            assert (caught.value.status, caught.value.worker_fault) == (503, True)
        await at.core.send(0, b"ENGINE_CORE_DEAD")
        await until(lambda: at.control._dead)
        assert not await at.control.health(1.0)

    async def test_a_message_that_cannot_be_read_harms_nobody(self, at):
        for junk in (b"", b"\xc1", b"\x80", b"\x92\x00\x91\x91\x01"):
            await at.core.send(1, junk)
        assert ids(await run(at)) == [5, 6, 7]

    async def test_tensors_that_are_none_fail_only_their_request(self, at):
        at.core._logprobs = lambda *_: [["<i8", [3], 77], ["<f4", [1], 78]]
        with pytest.raises(GatewayError, match="not an answer"):
            await run(at, logprobs=Logprobs(1))
        assert ids(await run(at, id="r2")) == [5, 6, 7]

    async def test_silence_with_requests_in_flight_is_death(self, at, monkeypatch):
        monkeypatch.setattr(source_module, "SILENCE_SECS", 0.1)
        at.core.stall = True
        with pytest.raises(GatewayError) as caught:
            await run(at)
        assert (caught.value.code, caught.value.worker_fault) == ("upstream_timeout", True)
        await until(lambda: at.core.aborts == ["r"])

    async def test_the_deadline(self, at):
        at.core.stall = True
        ctx = RequestContext("q")
        ctx.deadline = asyncio.get_running_loop().time() + 0.1
        source = await at.worker.open(ctx, request())
        with pytest.raises(GatewayError) as caught:
            await source.next()
        assert caught.value.code == "deadline_exceeded"

    async def test_an_engine_that_is_away_is_waited_for_only_a_moment(self, at, monkeypatch):
        monkeypatch.setattr("smg.engines.zmq.driver.CONNECT_SECS", 0.1)
        await at.core.__aexit__()
        with pytest.raises(GatewayError) as caught:
            await run(at)
        assert (caught.value.code, caught.value.status) == ("worker_failed", 503)
        assert at.worker._sources == {}

    async def test_an_engine_that_dies_without_a_word_fails_what_runs(self, at):
        at.core.tokens = lambda add: [5] * 60
        at.core.delay = 0.05
        source = await at.worker.open(RequestContext("q"), request())
        assert ids(await source.next()) == [5]
        await at.core.__aexit__()
        with pytest.raises(GatewayError) as caught:
            await drain(source)
        assert (caught.value.code, caught.value.worker_fault) == ("worker_failed", True)


class TestUtility:
    async def test_flushing_the_prefix_cache(self, at):
        assert (await at.worker.flush_cache()).success
        client, _, method, arguments = at.core.calls[0]
        assert (client, method, arguments) == (1, "reset_prefix_cache", [])

    async def test_a_call_that_fails(self, at):
        with pytest.raises(GatewayError) as caught:
            await at.worker._call("nope", 5.0)
        assert caught.value.detail == "no such method"


class TestAddresses:
    def test_the_handshake_of_a_path(self):
        address = parse("ipc:///run/smg/engine")
        # FNV-1a of the path, modulo 10000, from 20000 on.
        value = 0xCBF29CE484222325
        for byte in b"/run/smg/engine":
            value = ((value ^ byte) * 0x100000001B3) % 2**64
        assert address.handshake == f"tcp://127.0.0.1:{20000 + value % 10000}"
        assert (address.input(0), address.output(3)) == (
            "ipc:///run/smg/engine-in-0.sock",
            "ipc:///run/smg/engine-out-3.sock",
        )

    @pytest.mark.parametrize(
        "url", ["ipc://relative", "ipc:///" + "x" * 120, "zmq://host", "zmq://h:1/p", "grpc://h:1"]
    )
    def test_what_is_none(self, url):
        with pytest.raises(ValueError, match=r"required|must be|host:port"):
            parse(url)

    def test_files_in_the_way_are_not_taken_away(self, tmp_path):
        (tmp_path / "file").write_text("precious")
        with pytest.raises(FileExistsError):
            clear(f"ipc://{tmp_path}/file")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(tmp_path / "stale"))
        clear(f"ipc://{tmp_path}/stale")
        assert not (tmp_path / "stale").exists()

    def test_a_directory_is_made_for_us_alone_and_another_ones_refused(self, tmp_path):
        address = parse(f"ipc://{tmp_path}/new/engine")
        prepare(address)
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        (tmp_path / "link").symlink_to(tmp_path / "new")
        with pytest.raises(PermissionError):
            prepare(parse(f"ipc://{tmp_path}/link/engine"))


def test_every_field_has_its_position():
    fields = msgspec.msgpack.decode(VllmWire().add(request(dp_rank=0, trace="00-a-b-01"), 0, 4, Told(128))[0])
    assert len(fields) == 20
    assert [fields[place] for place in (8, 11, 12, 13, 15, 19)] == [0, 4, 0, 0, False, False]
    assert fields[14] == {"traceparent": "00-a-b-01"}
    assert [fields[place] for place in (2, 4, 6, 7, 9, 10, 17, 18)] == [None] * 8
