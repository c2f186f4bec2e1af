"""Tokenizers that admins add: jobs of the control process, from the request to what workers see."""

import asyncio
import contextlib

import pytest

from smg._native import region as table
from smg.control import tokenizer_jobs
from smg.control.prepared_tokenizers import PreparedTokenizers
from smg.control.tokenizer_jobs import TokenizerJobs
from smg.core.errors import GatewayError
from smg.fleet.published import encode, parts_of, read
from smg.fleet.records import ModelRecord, WorkerRecord
from smg.fleet.registry import Registry
from smg.text.mapped.folder import Folder
from tests.text.makers import chat_model


@pytest.fixture
def region():
    region = table.Region.create(3, workers=8)
    yield region
    region.close()


@pytest.fixture
def directory(tmp_path):
    return chat_model(tmp_path / "model")


@contextlib.asynccontextmanager
async def jobs_on(region, tmp_path):
    """Jobs and the registry they keep; ``jobs.wanted`` are the models whose tokenizer was to be looked for again."""
    registry = Registry(region)
    wanted: list[str] = []
    prepared = PreparedTokenizers(Folder(tmp_path / "prepared"))
    jobs = TokenizerJobs(registry, wanted.append, tmp_path / "cache", prepared.prepare)
    jobs.start()
    try:
        yield jobs, registry, wanted
    finally:
        await jobs.close()
        await prepared.close()


async def settled(record, seconds=30.0):
    async with asyncio.timeout(seconds):
        while record.status in ("pending", "processing"):  # noqa: ASYNC110 - a task of the jobs changes it
            await asyncio.sleep(0.01)
    return record


def failure(call) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        call()
    return caught.value


async def test_a_tokenizer_is_loaded_and_published(region, tmp_path, directory):
    async with jobs_on(region, tmp_path) as (jobs, registry, _):
        record = jobs.add("mine", str(directory))
        assert record.status == "pending"
        await settled(record)
        assert (record.status, record.error, record.directory) == ("completed", "", str(directory))
        assert record.vocab_size > 256
        registry.publish()
    snapshot = read(region.snapshot()[1])
    assert snapshot.tokenizer("mine") == snapshot.tokenizer(record.id) == record
    assert record.as_model().tokenizer_key == record.key
    # The next control process knows it, too.
    assert [one.name for one in Registry(region).tokenizers] == ["mine"]


@pytest.mark.parametrize(
    ("files", "problem"),
    [({}, "no tokenizer in"), ({"tokenizer.json": "{"}, "is not a tokenizer"), (None, "is no directory")],
)
async def test_what_cannot_be_loaded_fails_with_the_reason_and_the_name_stays_free(
    region, tmp_path, directory, files, problem
):
    source = tmp_path / "broken"
    if files is not None:
        source.mkdir()
        for name, content in files.items():
            (source / name).write_text(content)
    async with jobs_on(region, tmp_path) as (jobs, registry, _):
        record = await settled(jobs.add("mine", str(source)))
        assert record.status == "failed"
        assert problem in record.error
        again = await settled(jobs.add("mine", str(directory)))
        assert again.status == "completed"
        assert [one.id for one in registry.tokenizers] == [again.id]


async def test_failures_are_forgotten_after_a_while(region, tmp_path, monkeypatch):
    async with jobs_on(region, tmp_path) as (jobs, _, _):
        record = await settled(jobs.add("mine", "/nowhere"))
        assert [entry["status"] for entry in jobs.list_all()] == ["failed"]
        record.created -= 400
        assert jobs.list_all() == []


async def test_only_the_latest_failures_are_kept(region, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_jobs, "MOST_FAILED", 2)
    async with jobs_on(region, tmp_path) as (jobs, _, _):
        for number in range(4):
            (await settled(jobs.add(f"mine-{number}", "/nowhere"))).created -= 9 - number
        assert [entry["name"] for entry in jobs.list_all()] == ["mine-2", "mine-3"]


async def test_names_are_unique(region, tmp_path, directory):
    async with jobs_on(region, tmp_path) as (jobs, registry, _):
        record = jobs.add("mine", str(directory))
        error = failure(lambda: jobs.add("mine", str(directory)))
        assert (error.status, error.code, error.param) == (409, "conflict", "name")
        assert record.id in error.message
        registry._models["served"] = ModelRecord("served", tokenizer_dir="/somewhere")
        assert failure(lambda: jobs.add("served", str(directory))).code == "conflict"


async def test_a_template_of_its_own(region, tmp_path, directory):
    template = tmp_path / "own.jinja"
    template.write_text("own")
    async with jobs_on(region, tmp_path) as (jobs, _, _):
        record = await settled(jobs.add("mine", str(directory), str(template)))
        assert record.as_model().chat_template == str(template)
        error = failure(lambda: jobs.add("other", str(directory), str(tmp_path / "missing.jinja")))
        assert (error.status, error.param) == (400, "chat_template_path")
        (tmp_path / "empty.json").write_text("{}")
        broken = await settled(jobs.add("broken", str(directory), str(tmp_path / "empty.json")))
        assert "has no template in it" in broken.error


async def test_removal_by_name_and_by_id_and_of_what_a_model_brought(region, tmp_path, directory):
    async with jobs_on(region, tmp_path) as (jobs, registry, _):
        first = await settled(jobs.add("a", str(directory)))
        await settled(jobs.add("b", str(directory)))
        assert (jobs.delete(first.id), jobs.delete("b")) == ("a", "b")
        assert registry.tokenizers == []
        assert failure(lambda: jobs.delete("a")).code == "not_found"
        registry._models["served"] = ModelRecord("served", tokenizer_dir="/somewhere")
        [entry] = jobs.list_all()
        assert (entry["name"], entry["origin"], entry["source"]) == ("served", "model", "/somewhere")
        for wanted in ("served", entry["id"]):
            assert failure(lambda wanted=wanted: jobs.delete(wanted)).code == "conflict"


async def test_removal_stops_the_loading(region, tmp_path, directory, monkeypatch):
    monkeypatch.setattr(tokenizer_jobs, "MOST_LOADING", 0)
    async with jobs_on(region, tmp_path) as (jobs, registry, _):
        record = jobs.add("mine", str(directory))
        await asyncio.sleep(0.01)
        jobs.delete("mine")
        await asyncio.sleep(0.01)
        assert (registry.tokenizers, record.status) == ([], "pending")


@pytest.mark.parametrize("limit", ["MOST_PENDING", "MOST_ADDED"])
async def test_only_so_many_are_taken(region, tmp_path, directory, monkeypatch, limit):
    monkeypatch.setattr(tokenizer_jobs, limit, 1)
    async with jobs_on(region, tmp_path) as (jobs, _, _):
        jobs.add("a", str(directory))
        assert failure(lambda: jobs.add("b", str(directory))).status == 503


async def test_a_load_that_takes_too_long_fails(region, tmp_path, directory, monkeypatch):
    monkeypatch.setattr(tokenizer_jobs, "LOAD_SECS", 0.0)
    async with jobs_on(region, tmp_path) as (jobs, _, _):
        record = await settled(jobs.add("mine", str(directory)))
        assert (record.status, record.error) == ("failed", "it took longer than 0 seconds")


async def test_what_was_begun_goes_on_in_the_next_control_process(region, tmp_path, directory, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer_jobs, "MOST_LOADING", 0)
        async with jobs_on(region, tmp_path) as (jobs, registry, _):
            jobs.add("mine", str(directory))
            registry.publish()
    async with jobs_on(region, tmp_path) as (_, registry, _):
        [record] = registry.tokenizers
        assert (await settled(record)).status == "completed"


async def test_a_model_of_that_name_is_looked_at_again(region, tmp_path, directory):
    async with jobs_on(region, tmp_path) as (jobs, registry, wanted):
        registry._models["m"] = ModelRecord("m", aliases=["mine"])
        await settled(jobs.add("mine", str(directory)))
        jobs.delete("mine")
        assert wanted == ["m", "m"]


async def test_the_operations_of_the_socket(region, tmp_path, directory):
    async with jobs_on(region, tmp_path) as (jobs, registry, _):
        ask = jobs.operations()
        added = await ask["tokenizer_add"]({"name": "mine", "source": str(directory), "chat_template": ""})
        assert added["status"] == "pending"
        await settled(registry.tokenizers[0])
        [entry] = await ask["tokenizers"]({})
        assert (entry["id"], entry["status"], entry["origin"]) == (added["id"], "completed", "added")
        assert await ask["tokenizer_delete"]({"tokenizer": "mine"}) == "mine"


def test_an_older_snapshot_has_no_tokenizers_and_can_be_read():
    old = read(encode([3, parts_of([WorkerRecord("a", 0, "grpc://a")]), []]))
    assert ([worker.id for worker in old.workers], old.tokenizers) == (["a"], [])
