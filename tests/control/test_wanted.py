"""What sources say is taken over by its differences, a few workers per turn of the loop."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.region import Region
from smg.config.settings import ServerSettings, Settings
from smg.control import fleet as fleet_module
from smg.control.fleet import FleetControl
from smg.control.wanted import Wanted
from smg.fleet.sources import WorkerSpec

COUNT = 100


def spec(number, priority=50):
    return WorkerSpec(f"grpc://a:{number}", priority=priority)


def urls(*numbers):
    return [f"grpc://a:{number}" for number in numbers]


class TestWanted:
    def test_a_word_is_told_by_what_is_new_in_it(self):
        wanted = Wanted(["flags", "api"])
        assert wanted.say(0, [spec(1), spec(2), spec(3)]) == urls(1, 2, 3)
        assert wanted.say(0, [spec(4), spec(3), spec(2, priority=1)]) == urls(4, 2, 1)
        assert wanted.say(0, [spec(2, priority=1), spec(3), spec(4)]) == []
        assert wanted.urls == urls(2, 3, 4)

    def test_the_first_source_that_has_a_url_decides(self):
        wanted = Wanted(["flags", "api"])
        wanted.say(1, [spec(1, priority=9)])
        assert wanted.at("grpc://a:1") == (spec(1, priority=9), "api")
        wanted.say(0, [spec(1)])
        assert wanted.at("grpc://a:1") == (spec(1), "flags")
        wanted.say(0, [])
        assert wanted.at("grpc://a:1") == (spec(1, priority=9), "api")
        assert wanted.at("grpc://a:2") is None

    def test_who_has_said_nothing_is_silent_and_asks_for_nobody(self):
        wanted = Wanted(["flags", "file", "file"])
        wanted.say(1, [spec(1), spec(2)])
        assert (wanted.silent, wanted.counts()) == ({"flags", "file"}, {"flags": 0, "file": 2})
        wanted.say(2, [spec(3)])
        wanted.say(0, [])
        assert (wanted.silent, wanted.counts()) == (set(), {"flags": 0, "file": 3})


class Said:
    """A source whose words a test chooses."""

    name = "said"

    def __init__(self):
        self.words = asyncio.Queue()

    async def watch(self):
        while True:
            yield await self.words.get()


class Fleet:
    """A control whose workers are not probed; notes what it settles in each turn of the loop."""

    def __init__(self, control, source):
        self.control, self.source, self.registry = control, source, control.registry
        self.turn, self.settled = 0, {}
        self._settle, control._settle = control._settle, self.settle

    def settle(self, url):
        self.settled.setdefault(self.turn, []).append(url)
        self._settle(url)

    async def turning(self):
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def say(self, *specs):
        """Say so, and return the URLs that were settled for it."""
        self.settled.clear()
        await self.source.words.put(list(specs))
        for _ in range(100):
            await asyncio.sleep(0)
        return [url for some in self.settled.values() for url in some]

    def taking(self):
        return {worker.url for worker in self.registry.workers if worker.status != "draining"}


@pytest.fixture
def region():
    region = Region.create(3, workers=COUNT + 5, snapshot_bytes=1 << 20)
    yield region
    region.close()


@pytest.fixture
async def fleet(region, tmp_path, monkeypatch):
    def add(control, spec, origin):
        worker = control.registry.add(spec, origin)
        if (drain := control._draining.pop(worker.id, None)) is not None:
            drain.cancel()
            control.registry.set_status(worker.id, "pending")

    monkeypatch.setattr(FleetControl, "_watch", add)
    source = Said()
    control = FleetControl(Settings(server=ServerSettings(state_dir=str(tmp_path))), region, [source])
    fleet = Fleet(control, source)
    control.start()
    turning = asyncio.create_task(fleet.turning())
    yield fleet
    turning.cancel()
    await control.close()


async def test_only_workers_that_are_otherwise_are_looked_at(fleet):
    many = [spec(number) for number in range(COUNT)]
    assert await fleet.say(*many) == urls(*range(COUNT))
    assert max(map(len, fleet.settled.values())) <= fleet_module._SETTLED_AT_ONCE
    assert await fleet.say(*many) == []
    assert await fleet.say(*many[1:], spec(COUNT)) == urls(COUNT, 0)
    assert fleet.taking() == set(urls(*range(1, COUNT + 1)))
    assert await fleet.say(*many[2:], spec(COUNT, priority=7)) == urls(COUNT, 1)
    assert fleet.registry.by_url(f"grpc://a:{COUNT}").priority == 7
    # One that is leaving is wanted again.
    assert await fleet.say(*many[1:], spec(COUNT, priority=7)) == urls(1)
    assert fleet.taking() == set(urls(*range(1, COUNT + 1)))


async def test_who_found_no_room_is_tried_again_with_the_next_word(fleet):
    room = COUNT + 5
    assert len(await fleet.say(*(spec(number) for number in range(room + 1)))) == room + 1
    assert fleet.registry.by_url(f"grpc://a:{room}") is None
    fleet.registry.remove(fleet.registry.by_url("grpc://a:0").id)
    assert await fleet.say(*(spec(number) for number in range(1, room + 1))) == urls(0, room)
    assert fleet.taking() == set(urls(*range(1, room + 1)))


async def test_one_that_was_dismissed_is_refused_until_nobody_asks_for_it(fleet):
    await fleet.say(spec(1), spec(2))
    fleet.control.dismiss(fleet.registry.by_url("grpc://a:1"))
    assert (fleet.registry.refused, fleet.taking()) == (set(urls(1)), set(urls(2)))
    await fleet.say(spec(1, priority=1), spec(2))
    assert (fleet.registry.refused, fleet.taking()) == (set(urls(1)), set(urls(2)))
    await fleet.say(spec(2))
    assert fleet.registry.refused == set()
    await fleet.say(spec(1), spec(2))
    assert fleet.taking() == set(urls(1, 2))


@given(st.lists(st.tuples(st.integers(0, 1), st.dictionaries(st.integers(0, 5), st.integers(1, 3))), max_size=12))
def test_differences_lead_to_what_is_wanted_as_a_whole(words):
    wanted = Wanted(["first", "second"])
    last, kept = [{}, {}], {}
    for number, word in words:
        last[number] = word
        for url in wanted.say(number, [spec(each, priority) for each, priority in word.items()]):
            kept[url] = wanted.at(url)
        whole = {f"grpc://a:{each}": (spec(each, p), "second") for each, p in last[1].items()}
        whole |= {f"grpc://a:{each}": (spec(each, p), "first") for each, p in last[0].items()}
        assert {url: asked for url, asked in kept.items() if asked is not None} == whole
