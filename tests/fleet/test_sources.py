"""Where workers come from: flags, a file, the API."""

import asyncio

import pytest

from smg.fleet.file_source import FileSource, read
from smg.fleet.resilience import ResilienceSpec
from smg.fleet.sources import ApiSource, HealthSpec, ModelCard, StaticSource, WorkerSpec


class TestFile:
    def test_an_address_or_an_object_per_worker(self):
        content = b"""
        workers:
        - grpc://a:1
        - {url: "grpc://b:1", runtime: sglang, labels: {zone: x}, priority: 7, cost: 2,
           models: [m, {id: n, aliases: [o]}], health: {failure_threshold: 9}}
        """
        assert read(content) == [
            WorkerSpec("grpc://a:1"),
            WorkerSpec(
                "grpc://b:1",
                "sglang",
                (ModelCard("m"), ModelCard("n", ("o",))),
                {"zone": "x"},
                7,
                2.0,
                HealthSpec(failure_threshold=9),
            ),
        ]

    def test_what_is_otherwise_with_one_worker(self):
        content = b"""
        workers:
        - {url: "grpc://a:1", health: {disable_health_check: true}, resilience: {max_retries: 2, cb_timeout_secs: 5},
           max_connection_attempts: 20, load_monitor_interval_secs: 1, labels: {zone: a},
           multimodal_tensor_transport: shm, multimodal_shm_min_bytes: 1}
        """
        assert read(content) == [
            WorkerSpec(
                "grpc://a:1",
                labels={"zone": "a", "multimodal_tensor_transport": "shm", "multimodal_shm_min_bytes": "1"},
                health=HealthSpec(disable_health_check=True),
                resilience=ResilienceSpec(max_retries=2, cb_timeout_secs=5),
                max_connection_attempts=20,
                load_monitor_interval_secs=1,
            )
        ]

    def test_json_is_fine_too(self):
        assert read(b'{"workers": [{"url": "grpc://a:1", "cost": 0.5}]}') == [WorkerSpec("grpc://a:1", cost=0.5)]

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"workers: [", "neither YAML nor JSON"),
            (b"- grpc://a:1", "a list 'workers'"),
            (b"workers: grpc://a:1", "a list 'workers'"),
            (b"workers: [7]", r"workers\[0\]"),
            (b"workers: [grpc://a:1, ftp://b:1]", r"workers\[1\]: .*scheme"),
            (b"workers: [{url: 'grpc://a:1', runtime: abacus}]", r"workers\[0\]: .*abacus"),
            (b"workers: [{url: 'grpc://a:1', colour: red}]", r"workers\[0\]: .*colour"),
            (b"workers: [{url: 'grpc://a:1', resilience: {max_retries: 0}}]", r"workers\[0\]: .*resilience"),
            (b"workers: [grpc://a:1, grpc://a:1]", "twice"),
            (b"\xff\xfe\xff", "neither YAML nor JSON"),
        ],
    )
    def test_what_is_wrong_is_named(self, content, problem):
        with pytest.raises(ValueError, match=problem):
            read(content)

    async def test_it_is_read_again_when_it_changes_and_keeps_its_word_when_it_is_gone(self, tmp_path, caplog):
        path = tmp_path / "workers.yaml"
        lists = FileSource(str(path), 0.01).watch()
        first = asyncio.ensure_future(anext(lists))
        await asyncio.sleep(0.05)
        assert not first.done(), "a file that is not there yet says nothing"
        path.write_text("workers: [grpc://a:1]")
        assert await asyncio.wait_for(first, 5) == [WorkerSpec("grpc://a:1")]
        second = asyncio.ensure_future(anext(lists))
        path.unlink()
        await asyncio.sleep(0.05)
        path.write_text("workers: [grpc://a:1]")
        await asyncio.sleep(0.05)
        assert not second.done(), "the same again is no news"
        path.write_text("workers: []")
        assert await asyncio.wait_for(second, 5) == []
        assert caplog.text.count("workers cannot be read") == 2, "each trouble is logged once"


async def test_the_api_s_list_is_told_again_after_every_change():
    source = ApiSource([WorkerSpec("grpc://a:1")])
    lists = source.watch()
    assert await anext(lists) == [WorkerSpec("grpc://a:1")]
    source.put(WorkerSpec("grpc://b:1"))
    source.put(WorkerSpec("grpc://a:1", priority=1))
    assert await anext(lists) == [WorkerSpec("grpc://a:1", priority=1), WorkerSpec("grpc://b:1")]
    source.drop("grpc://a:1")
    source.drop("grpc://nobody:1")
    assert await anext(lists) == [WorkerSpec("grpc://b:1")]


async def test_flags_say_it_once():
    source = StaticSource(["grpc://a:1", "grpc://a:1"], "vllm")
    assert [specs async for specs in source.watch()] == [[WorkerSpec("grpc://a:1", "vllm")]]
