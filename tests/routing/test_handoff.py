"""What the engines of a pair are told (spec engine-contract 5.1 and 5.2)."""

import json

import pytest

from smg._native.region import Region
from smg.core.backends import EngineRequest, Leg
from smg.core.media import MediaInputs, MediaItem
from smg.core.request import Constraint, Limits, Logprobs, Sampling
from smg.fleet.records import WorkerRecord
from smg.routing.handoff import KvRelay, Rooms, meeting, relayable


@pytest.fixture
def region():
    return Region.create(processes=3, workers=4)


def worker(runtime="vllm", url="grpc://10.0.0.7:50051", **labels):
    return WorkerRecord("p", 0, url, runtime=runtime, role="prefill", labels=labels)


def request(**changes):
    fields = {"id": "r-1", "ids": [5, 6], "sampling": Sampling(), "limits": Limits(max_tokens=9)}
    return EngineRequest(**(fields | changes))


class TestRooms:
    @pytest.mark.parametrize("bits", [31, 63])
    def test_no_number_comes_twice_whichever_process_draws(self, region, bits):
        one, other = Rooms(region), Rooms(region)
        drawn = [rooms.next(bits) for _ in range(20_000) for rooms in (one, other)]
        assert len(set(drawn)) == len(drawn)
        assert min(drawn) > 0
        assert max(drawn) < 1 << bits

    def test_they_fill_the_range_and_every_rank_gets_its_share(self, region):
        rooms = Rooms(region)
        drawn = [rooms.next(31) for _ in range(8000)]
        for ranks in (2, 4, 8):
            counts = [sum(room % ranks == rank for room in drawn) for rank in range(ranks)]
            assert max(counts) - min(counts) <= 1
        assert max(drawn) - min(drawn) > 0.99 * 2**31

    def test_another_gateway_has_others(self, region):
        mine, theirs = Rooms(region), Rooms(Region.create(processes=3, workers=4))
        assert not {mine.next(63) for _ in range(2000)} & {theirs.next(63) for _ in range(2000)}

    def test_zero_is_never_a_room(self):
        class Counting:
            boot_id = 0
            count = -1

            def sequence_next(self, sequence):
                self.count += 1
                return self.count

        assert Rooms(Counting()).next(31) != 0


class TestMeeting:
    def test_host_and_port_of_the_prefill_worker(self, region):
        prefill, decode = meeting(worker("sglang"), Rooms(region))
        assert (prefill.role, decode.role) == ("prefill", "decode")
        assert prefill.bootstrap == decode.bootstrap
        assert (prefill.bootstrap.host, prefill.bootstrap.port) == ("10.0.0.7", 8998)
        assert prefill.bootstrap.room < 2**31

    def test_labels_say_better(self, region):
        labels = {"bootstrap_host": "rdma-7", "bootstrap_port": "7000", "disaggregation_bootstrap_port": "6000"}
        told, _ = meeting(worker("tokenspeed", **labels), Rooms(region))
        assert (told.bootstrap.host, told.bootstrap.port) == ("rdma-7", 7000)

    def test_the_engine_itself_may_tell_its_port(self, region):
        told, _ = meeting(worker("sglang", disaggregation_bootstrap_port="6000"), Rooms(region))
        assert told.bootstrap.port == 6000

    def test_an_ipv6_host_has_no_brackets(self, region):
        told, _ = meeting(worker("sglang", "grpc://[fd00::7]:50051"), Rooms(region))
        assert told.bootstrap.host == "fd00::7"


class TestRelay:
    def test_the_clone_asks_for_one_token_and_nothing_else(self):
        asked = KvRelay(worker(kv_connector="NixlConnector"), 0).ask(
            request(
                limits=Limits(99, 7),
                stop_ids=(2,),
                logprobs=Logprobs(3),
                constraint=Constraint("regex", "a+"),
                require_reasoning=True,
                dp_rank=3,
            )
        )
        assert (asked.limits, asked.stop_ids, asked.ignore_eos, asked.n) == (Limits(1), (), True, 1)
        assert (asked.logprobs, asked.constraint, asked.require_reasoning, asked.dp_rank) == (None, None, False, None)
        assert (asked.id, list(asked.ids)) == ("r-1", [5, 6])

    def test_nixl(self):
        relay = KvRelay(worker(kv_connector="NixlConnector"), 0)
        assert json.loads(relay.ask(request()).leg.kv_params) == {"do_remote_decode": True, "do_remote_prefill": False}
        assert relay.answer(b'{"a" :1}').kv_params == b'{"a" :1}'
        assert relay.answer(None) is None

    def test_an_unknown_connector_is_told_nothing_and_relayed_all_the_same(self):
        relay = KvRelay(worker(kv_connector="LMCacheConnectorV1"), 0)
        assert relay.ask(request()).leg.kv_params is None
        assert relay.answer(b"{}").kv_params == b"{}"

    def test_mooncake(self):
        relay = KvRelay(worker(kv_connector="MooncakeConnector", kv_engine_id="e-1", bootstrap_port="7001"), 0)
        asked = json.loads(relay.ask(request()).leg.kv_params)
        told = relay.answer(b'{"ignored": true}')
        assert json.loads(told.kv_params) == {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "transfer_id": asked["transfer_id"],
            "remote_engine_id": "e-1",
            "remote_bootstrap_addr": "http://10.0.0.7:7001",
        }
        assert told.kv_address is None

    def test_mooncake_without_an_engine_id_gets_host_and_port(self):
        told = KvRelay(worker(kv_connector="MooncakeConnector"), 0).answer(None)
        assert (told.kv_params, told.kv_address) == (None, ("10.0.0.7", 8998))

    def test_mooncake_a_prefill_engine_of_several_ranks_is_pinned_to_one_in_turn(self):
        labels = {"kv_connector": "MooncakeConnector", "kv_engine_id": "e", "dp_size": "4"}
        relays = [KvRelay(worker(**labels), turn) for turn in range(6)]
        assert [relay.ask(request(dp_rank=9)).dp_rank for relay in relays] == [0, 1, 2, 3, 0, 1]
        assert json.loads(relays[2].answer(None).kv_params)["remote_engine_id"] == "e_dp2"

    def test_mooncake_the_rank_that_routing_has_chosen_is_kept(self):
        labels = {"kv_connector": "MooncakeConnector", "kv_engine_id": "e", "dp_size": "4"}
        relay = KvRelay(worker(**labels), 1, rank=3)
        assert relay.ask(request()).dp_rank == 3
        assert json.loads(relay.answer(None).kv_params)["remote_engine_id"] == "e_dp3"

    def test_transfers_have_names_of_their_own(self):
        names = {json.loads(KvRelay(worker(kv_connector="mooncake"), 0).ask(request()).leg.kv_params)["transfer_id"]
                 for _ in range(100)}  # fmt: skip
        assert len(names) == 100

    def test_what_cannot_be_handed_over(self):
        assert relayable(request()) is None
        assert relayable(request(logprobs=Logprobs(2))) is None
        assert relayable(request(n=2)) == "n"
        assert relayable(request(logprobs=Logprobs(prompt=True))) == "prompt_logprobs"


class TestPixels:
    """When a decode engine is only told which media a prompt has."""

    def described(self, media=((1, 2),), connector="NixlConnector", leg=None, ids=(5, 6, 6, 7), **labels):
        items = [MediaItem("image", f"{at:064x}", b"", (at, length), (), None, {}) for at, length in media]
        inputs = MediaInputs(items, None, {}, "", (), 6, (), len(ids)) if items else None
        relay = KvRelay(worker(kv_connector=connector), 0)
        decode = WorkerRecord("d", 1, "grpc://10.0.0.8:1", labels={"block_size": "16"} | labels)
        return relay.describes(request(ids=ids, media=inputs), leg or Leg("decode", kv_params=b"{}"), decode)

    @pytest.mark.parametrize("connector", ["NixlConnector", "MooncakeConnector"])
    def test_when_the_cache_comes_from_the_prefill_engine(self, connector):
        assert self.described(connector=connector)

    @pytest.mark.parametrize(
        "change",
        [
            {"media": ()},
            {"connector": "LMCacheConnectorV1"},
            {"leg": Leg("decode", kv_address=("h", 1))},
            {"media": ((0, 1), (2, 2))},  # the last token is an image's
            {"block_size": ""},
        ],
    )
    def test_when_not(self, change):
        assert not self.described(**change)
