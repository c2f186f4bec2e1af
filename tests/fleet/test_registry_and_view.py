"""Control writes, request workers read (spec routing 4.2, 10.3 item 6)."""

import pytest

from smg._native import region as table
from smg._native.event_blocks import EventBlocks
from smg._native.prefix_keys import PrefixKeys
from smg.core.errors import GatewayError
from smg.fleet.records import FleetSnapshot
from smg.fleet.registry import Registry
from smg.fleet.sources import ModelCard, WorkerSpec
from smg.fleet.view import FleetView
from tests.snapshots import blob

URLS = ["grpc://a:1", "grpc://b:1", "grpc://c:1"]


@pytest.fixture
def registry(region):
    return Registry(region)


def names(models):
    return {model.id: model.aliases for model in models}


class TestWorkers:
    def test_a_new_worker_is_pending_in_the_table_at_once(self, registry, region):
        worker = registry.add(WorkerSpec(URLS[0], labels={"zone": "x"}, priority=10, cost=0.5))
        assert region.worker_get(worker.slot, table.STATUS) == 1
        assert (worker.status, worker.priority, worker.cost, worker.labels) == ("pending", 10, 0.5, {"zone": "x"})
        assert registry.add(WorkerSpec(URLS[0])) is worker
        assert registry.dirty.is_set()

    def test_slots_are_unique_and_a_removed_workers_slot_is_used_again(self, registry, region):
        workers = [registry.add(WorkerSpec(url)) for url in URLS]
        assert [worker.slot for worker in workers] == [0, 1, 2]
        generation = region.worker_generation(1)
        registry.remove(workers[1].id)
        # Request workers know it until they read the next snapshot.
        assert registry.add(WorkerSpec("grpc://d:1")).slot == 3
        registry.publish()
        assert region.worker_get(1, table.STATUS) == 0
        assert registry.add(WorkerSpec("grpc://e:1")).slot == 1
        assert region.worker_generation(1) > generation
        registry.remove("nobody")

    def test_in_a_full_table_a_slot_that_is_left_can_be_had_at_once(self, registry):
        first, *_ = (registry.add(WorkerSpec(f"grpc://a:{port}")) for port in range(1, 5))
        registry.remove(first.id)
        assert registry.add(WorkerSpec("grpc://a:5")).slot == first.slot
        assert FleetView(registry._region).snapshot().workers[0].url == "grpc://a:2"

    def test_a_full_table_is_an_error(self, registry):
        for port in range(1, 5):
            registry.add(WorkerSpec(f"grpc://a:{port}"))
        with pytest.raises(GatewayError) as caught:
            registry.add(WorkerSpec("grpc://a:5"))
        assert caught.value.status == 503

    def test_a_change_of_status_is_logged_with_url_and_id(self, registry, caplog):
        worker = registry.add(WorkerSpec(URLS[0]))
        with caplog.at_level("INFO", "smg.fleet"):
            registry.set_status(worker.id, "ready")
        (record,) = caplog.records
        assert (record.message, record.worker, record.worker_id) == ("worker is ready", URLS[0], worker.id)

    def test_status_changes_reach_the_table_before_the_snapshot(self, registry, region):
        worker = registry.add(WorkerSpec(URLS[0]))
        registry.publish()
        assert not registry.dirty.is_set()
        registry.set_status(worker.id, "ready")
        assert region.worker_get(worker.slot, table.STATUS) == 2
        assert registry.dirty.is_set()
        registry.publish()
        registry.set_status(worker.id, "ready")
        assert not registry.dirty.is_set()

    def test_configured_labels_win_over_what_the_engine_tells(self, registry, told):
        worker = registry.add(WorkerSpec(URLS[0], labels={"zone": "x"}))
        registry.identify(worker.id, "vllm", told(labels={"zone": "engine", "dp_size": "2"}))
        assert worker.labels == {"zone": "x", "dp_size": "2"}
        registry.identify(worker.id, "vllm", told(labels={"dp_size": "4"}))
        assert worker.labels == {"zone": "x", "dp_size": "4"}

    def test_a_snapshot_that_does_not_fit_leaves_the_last_one(self, registry, region):
        registry.publish()
        version = region.snapshot_version()
        registry.add(WorkerSpec(URLS[0], labels={"big": "x" * (1 << 17)}))
        registry.publish()
        assert region.snapshot_version() == version


class TestModels:
    def test_models_come_from_what_engines_tell(self, registry, told):
        worker = registry.add(WorkerSpec(URLS[0]))
        assert registry.models == []
        registry.identify(worker.id, "vllm", told(default_sampling={"temperature": 0.6}, model_path="meta/llama"))
        [model] = registry.models
        assert (model.id, model.aliases, model.context_length, model.eos_ids) == ("llama", ["meta/llama"], 4096, [2])
        assert model.default_sampling == {"temperature": 0.6}
        assert model.created > 0
        assert (worker.runtime, worker.models) == ("vllm", ["llama"])

    def test_several_engines_of_one_model_the_smallest_context_fits_all(self, registry, told):
        first, second = registry.add(WorkerSpec(URLS[0])), registry.add(WorkerSpec(URLS[1]))
        registry.identify(first.id, "vllm", told(context_length=0))
        registry.identify(second.id, "vllm", told(context_length=8192))
        assert registry.models[0].context_length == 8192
        registry.identify(first.id, "vllm", told(context_length=2048))
        assert registry.models[0].context_length == 2048
        registry.remove(first.id)
        assert registry.models[0].context_length == 8192
        registry.remove(second.id)
        assert registry.models == []

    def test_local_paths_answer_to_their_last_part(self, registry, told):
        worker = registry.add(WorkerSpec(URLS[0]))
        registry.identify(worker.id, "vllm", told("/opt/models/llama-8b", model_path="/opt/models/llama-8b"))
        assert names(registry.models) == {"/opt/models/llama-8b": ["llama-8b"]}
        registry.identify(worker.id, "vllm", told("llama", model_path="/opt/models/llama-8b"))
        assert names(registry.models) == {"llama": []}

    def test_an_alias_never_shadows_and_passes_on(self, registry, told):
        a, b, c = (registry.add(WorkerSpec(url)) for url in URLS)
        registry.identify(a.id, "vllm", told("x", model_path="org/base"))
        registry.identify(b.id, "vllm", told("y", model_path="org/base"))
        assert names(registry.models) == {"x": ["org/base"], "y": []}
        registry.remove(a.id)
        assert names(registry.models) == {"y": ["org/base"]}
        registry.identify(c.id, "vllm", told("org/base"))
        assert names(registry.models) == {"y": [], "org/base": []}

    def test_unknown_is_nobodys_alias(self, registry, told):
        registry.identify(registry.add(WorkerSpec(URLS[0])).id, "vllm", told("x", model_path="unknown"))
        assert names(registry.models) == {"x": []}

    def test_a_tokenizer_that_is_there_survives_a_failed_refresh(self, registry, told):
        registry.identify(registry.add(WorkerSpec(URLS[0])).id, "vllm", told())
        registry.set_tokenizer("llama", "", "", "not yet")
        assert registry.models[0].tokenizer_error == "not yet"
        registry.set_tokenizer("llama", "/cache/ab", "ab")
        assert (registry.models[0].tokenizer_dir, registry.models[0].tokenizer_error) == ("/cache/ab", "")
        registry.set_tokenizer("llama", "", "", "engine away")
        model = registry.models[0]
        assert (model.tokenizer_dir, model.tokenizer_key, model.tokenizer_error) == ("/cache/ab", "ab", "engine away")
        registry.set_tokenizer("nobody", "/x", "x")

    async def test_workers_that_name_different_policies_are_warned_of_once(self, registry, told, caplog):
        for url, policy in zip(URLS, ("least_load", "random", "least_load"), strict=True):
            registry.identify(registry.add(WorkerSpec(url, labels={"policy": policy})).id, "vllm", told())
            await registry.publish_in_turns()
        first, second = [record for record in caplog.records if "different policies" in record.message]
        assert (first.levelname, first.policy, first.worker, first.ignored) == (
            "WARNING",
            "least_load",
            URLS[0],
            ["random"],
        )
        assert second.ignored == ["random"]
        caplog.clear()
        await registry.publish_in_turns()
        registry.set_policy(registry.models[0].id, "manual")
        await registry.publish_in_turns()
        assert not caplog.records

    def test_workers_that_agree_on_a_policy_are_not_warned_of(self, registry, told, caplog):
        for url in URLS:
            registry.identify(registry.add(WorkerSpec(url, labels={"policy": "random"})).id, "vllm", told())
        registry.publish()
        assert not [record for record in caplog.records if record.levelname == "WARNING"]


class TestRestartOfControl:
    def test_ids_slots_status_and_models_go_on(self, registry, region, told):
        workers = [registry.add(WorkerSpec(url)) for url in URLS]
        registry.remove(workers[0].id)
        registry.identify(workers[1].id, "vllm", told(model_path="org/llama"))
        registry.set_status(workers[1].id, "ready")
        registry.set_tokenizer("llama", "/cache/ab", "ab")
        registry.publish()
        registry.set_status(workers[2].id, "not_ready")  # in the table, not yet published

        after = Registry(region)
        assert [(w.id, w.slot, w.status) for w in after.workers] == [
            (workers[1].id, 1, "ready"),
            (workers[2].id, 2, "not_ready"),
        ]
        assert after.models == registry.models
        # The engine has not told the new process anything yet, and that takes nothing away.
        assert after.add(WorkerSpec(URLS[1])).id == workers[1].id
        after.add(WorkerSpec("grpc://d:1"))
        after.identify(after.by_url("grpc://d:1").id, "vllm", told("other"))
        assert [(m.id, m.aliases, m.tokenizer_key) for m in after.models] == [
            ("llama", ["org/llama"], "ab"),
            ("other", [], ""),
        ]
        assert after.by_url("grpc://d:1").slot == 0

    def test_an_unreadable_snapshot_is_a_fresh_start(self, region):
        region.publish(b"\xc1")
        assert Registry(region).workers == []


class TestView:
    def test_before_the_first_snapshot_there_is_nothing(self, region):
        view = FleetView(region)
        assert view.snapshot().workers == []
        assert view.worker("x") is None

    def test_a_snapshot_is_read_once_per_version(self, registry, region, told):
        view, seen = FleetView(region), []
        remove = view.on_change(seen.append)
        worker = registry.add(WorkerSpec(URLS[0]))
        registry.identify(worker.id, "vllm", told())
        registry.publish()
        first = view.snapshot()
        assert view.snapshot() is first
        assert view.worker(worker.id).url == URLS[0]
        assert first.version == region.snapshot_version()
        assert first.model("llama").context_length == 4096
        registry.publish()
        assert view.snapshot() is not first
        assert seen == [first, view.snapshot()]
        remove()
        remove()
        registry.publish()
        view.snapshot()
        assert len(seen) == 2

    def test_status_is_live_without_a_new_snapshot(self, registry, region):
        view = FleetView(region)
        worker = registry.add(WorkerSpec(URLS[0]))
        registry.publish()
        record = view.worker(worker.id)
        assert (view.status(record), view.ready(record)) == ("pending", False)
        registry.set_status(worker.id, "ready")
        assert (view.status(record), view.ready(record)) == ("ready", True)
        registry.remove(worker.id)
        registry.publish()
        assert (view.status(record), view.ready(record)) == ("failed", False)

    def test_failures_are_counted_for_control(self, registry, region):
        view = FleetView(region)
        worker = registry.add(WorkerSpec(URLS[0]))
        view.failed(worker)
        view.failed(worker)
        assert region.worker_get(worker.slot, table.FAILURES) == 2


class TestPrefixIndex:
    """Workers can be learnt about from the moment they are there, and not a moment longer."""

    KEYS = PrefixKeys.of_tokens(range(64))

    def held(self, region, slot):
        return region.index.depth(self.KEYS, [slot])

    def test_a_worker_has_a_ticket_as_long_as_it_is_registered(self, registry, region):
        worker = registry.add(WorkerSpec(URLS[0]))
        region.index.insert(self.KEYS, region.index.ticket(worker.slot))
        assert self.held(region, worker.slot) == [4]
        registry.remove(worker.id)
        registry.publish()
        assert region.index.ticket(worker.slot) == 0
        assert registry.add(WorkerSpec(URLS[1])).slot == worker.slot
        assert self.held(region, worker.slot) == [0]

    def test_a_new_control_process_keeps_what_was_sent_and_forgets_what_was_told(self, registry, region):
        kept, gone = registry.add(WorkerSpec(URLS[0])), registry.add(WorkerSpec(URLS[1]))
        registry.publish()
        for worker in (kept, gone):
            region.index.insert(self.KEYS, region.index.ticket(worker.slot))
            told = EventBlocks(region.index, worker.slot, 16)
            told.store(range(4), range(64))
            region.index.set_live(worker.slot, 16)
        # Control dies after it has published that a worker is gone, and before it has told the index.
        heirs_view = FleetSnapshot(9, [kept], [])
        region.publish(blob(heirs_view))
        Registry(region)
        assert self.held(region, kept.slot) == [4]
        assert region.index.depth(self.KEYS, [kept.slot], 1) == [0]
        assert region.index.live(kept.slot) == 0
        assert region.index.ticket(gone.slot) == 0

    def known(self, registry, region, told, **fields):
        """A worker whose engine was sent something, and has told that it holds it."""
        worker = registry.add(WorkerSpec(URLS[0], **fields))
        registry.identify(worker.id, "vllm", told(model_path="org/llama"))
        region.index.insert(self.KEYS, region.index.ticket(worker.slot))
        EventBlocks(region.index, worker.slot, 16).store(range(4), range(64))
        region.index.set_live(worker.slot, 16)
        region.worker_set(worker.slot, table.COMPUTED, 500)
        assert self.held(region, worker.slot) == [4]
        return worker

    @pytest.mark.parametrize(
        ("runtime", "change"),
        [
            ("sglang", {"model_path": "org/llama"}),
            ("vllm", {"model": "qwen", "model_path": "org/llama"}),
            ("vllm", {"model_path": "org/llama-tuned"}),
            ("vllm", {"model_path": "org/llama", "tokenizer_path": "org/other"}),
        ],
    )
    def test_another_engine_at_a_worker_s_address_holds_nothing(self, registry, region, told, runtime, change):
        worker = self.known(registry, region, told)
        if "tokenizer_path" in change:
            registry.identify(worker.id, "vllm", told(model_path="org/llama", tokenizer_path="org/llama"))
            assert self.held(region, worker.slot) == [4], "what was not known before is no difference"
        old = region.index.ticket(worker.slot)
        registry.identify(worker.id, runtime, told(**change))
        assert self.held(region, worker.slot) == [0]
        assert region.index.depth(self.KEYS, [worker.slot], 1) == [0]
        assert region.index.live(worker.slot) == 0
        assert region.worker_get(worker.slot, table.COMPUTED) == 0
        # What is still learnt of requests to the old one is lost, and of the new one anything can be learnt.
        region.index.insert(self.KEYS, old)
        assert self.held(region, worker.slot) == [0]
        region.index.insert(self.KEYS, region.index.ticket(worker.slot))
        assert self.held(region, worker.slot) == [4]

    def test_it_is_noticed_under_the_operator_s_own_name_too(self, registry, region, told):
        worker = self.known(registry, region, told, models=(ModelCard("prod"),))
        registry.identify(worker.id, "vllm", told(model="qwen", model_path="org/qwen"))
        assert worker.models == ["prod"]
        assert self.held(region, worker.slot) == [0]

    def test_the_same_engine_that_tells_more_of_itself_keeps_what_it_holds(self, registry, region, told):
        worker = self.known(registry, region, told)
        registry.identify(worker.id, "vllm", told(model_path="org/llama", labels={"max_running_requests": "64"}))
        assert (self.held(region, worker.slot), region.index.live(worker.slot)) == ([4], 16)

    def test_a_new_control_process_notices_as_well(self, registry, region, told):
        worker = self.known(registry, region, told)
        registry.publish()
        heir = Registry(region)
        heir.identify(worker.id, "vllm", told(model_path="org/llama"))
        assert self.held(region, worker.slot) == [4]
        heir.publish()
        Registry(region).identify(worker.id, "vllm", told("qwen", model_path="org/qwen"))
        assert self.held(region, worker.slot) == [0]
