"""Several models in one gateway, each with its own tokenizer, template and parsers (spec text-pipeline 6)."""

import asyncio
import io
import json
import zipfile

import openai
import pytest

from smg._native.region import STATUS, Region
from smg.config.settings import ModelSettings, Settings
from smg.engine_server.mock import MockEngine, Script
from smg.engine_server.mock import tokenizer as mock
from smg.engines.capabilities import offered
from smg.engines.table import adapter
from smg.fleet.models import derive
from smg.fleet.records import STATUS_CODES, FleetSnapshot, WorkerRecord
from smg.pipeline import services as pipeline
from smg.text.tokenizer import Tokenizer
from tests.api.serving import serving, until
from tests.engines.contracts import driver_to
from tests.snapshots import blob
from tests.text.makers import byte_level_json

ANSWER = "<think>hm</think>hi"
QUESTION = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def place(tmp_path):
    """``plain`` and ``other`` share a tokenizer, ``own`` has its own; the first two differ in template and parser."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    zipfile.ZipFile(io.BytesIO(mock.archive(32768))).extractall(shared)
    own.mkdir()
    (own / "tokenizer.json").write_text(byte_level_json())
    (own / "tokenizer_config.json").write_text(json.dumps({"chat_template": "own {{ messages[0].content }}"}))
    (tmp_path / "other.jinja").write_text("other {{ messages[0].content }}")
    settings = Settings(
        model=ModelSettings(reasoning_parser="passthrough"),
        models={
            "other": ModelSettings(chat_template=str(tmp_path / "other.jinja"), reasoning_parser="base"),
            "own": ModelSettings(reasoning_parser="qwen3"),
        },
    )
    engines = {name: MockEngine(Script.text(ANSWER, split="byte"), model=name) for name in ("plain", "other", "own")}
    region = Region.create(processes=3, workers=8, series=1024, snapshot_bytes=1 << 16)
    workers, infos = [], {}
    for slot, (name, engine) in enumerate(engines.items()):
        await engine.__aenter__()
        async with driver_to(engine.url, "vllm") as driver:
            infos[name] = await driver.info()
        features = offered(adapter("vllm").capabilities, infos[name])
        workers.append(WorkerRecord(name, slot, engine.url, runtime="vllm", models=[name], features=features))
        region.worker_set(slot, STATUS, STATUS_CODES["ready"])
    models = derive(workers, infos, {}, lambda: 7)
    for model in models:
        directory = own if model.id == "own" else shared
        model.tokenizer_dir, model.tokenizer_key = str(directory), directory.name
    region.publish(blob(FleetSnapshot(1, workers, models)))
    built = pipeline.build(settings, region, 1)
    watch = asyncio.create_task(built.watch())
    await until(lambda: all(built.texts.ready(model) for model in models))
    yield built, engines, {model.id: built.texts.get(model) for model in models}
    watch.cancel()
    await built.close()
    for engine in engines.values():
        await engine.__aexit__(None, None, None)


async def asked(client, name):
    answer = await client.chat.completions.create(model=name, messages=QUESTION)
    return answer.choices[0].message


async def test_each_model_has_its_own_template_tokenizer_and_parsers(place):
    built, engines, texts = place
    async with (
        serving(built) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        answers = dict(zip(engines, await asyncio.gather(*(asked(client, name) for name in engines)), strict=True))
    prompts = {
        name: texts[name].tokenizer.decode(list(engine.requests[0].request.tokenized.input_ids), False)
        for name, engine in engines.items()
    }
    assert prompts["other"] == "other hello"
    assert prompts["own"] == "own hello"
    assert prompts["plain"].endswith("hello\n") or "hello" in prompts["plain"]
    assert prompts["plain"] != prompts["other"]
    assert answers["plain"].content == ANSWER
    assert answers["other"].content == "hi"
    assert answers["other"].reasoning_content == "hm"


def test_equal_files_are_in_memory_once(place):
    _, _, texts = place
    assert texts["plain"].tokenizer is texts["other"].tokenizer
    assert texts["plain"].source != texts["other"].source
    assert texts["own"].tokenizer is not texts["plain"].tokenizer
    assert isinstance(texts["own"].tokenizer, Tokenizer)
