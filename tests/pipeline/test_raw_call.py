"""What routing sees of a request that is passed on as it is."""

import json
import tracemalloc

from smg.engines.http.fields import Fields
from smg.fleet.records import ModelRecord
from smg.pipeline.raw_call import RawCall
from smg.routing.index.cost import BYTES_PER_TOKEN

MB = 1 << 20


def query(**body):
    return RawCall(ModelRecord("m"), Fields(json.dumps(body).encode()), ("/v1",), "chat", {}).query()


def test_the_prompt_is_seen_as_the_bytes_it_is_sent_in():
    seen = query(model="m", messages=[{"role": "user", "content": "ü"}], tools=[1], temperature=1)
    assert seen.text == '[1][{"role": "user", "content": "\\u00fc"}]'
    assert seen.tokens == len(seen.text) // BYTES_PER_TOKEN


def test_token_ids_are_seen_as_they_are():
    seen = query(prompt=[1, 2, 3])
    assert (list(seen.ids), seen.tokens, seen.text) == ([1, 2, 3], 3, "")


def test_of_a_video_its_beginning_is_seen_and_its_size():
    body = {"messages": [{"role": "user", "content": "ab" * 8 * MB}]}
    call = RawCall(ModelRecord("m"), Fields(json.dumps(body).encode()), ("/v1",), "chat", {})
    tracemalloc.start()
    seen = call.query()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = json.dumps(body["messages"])
    assert seen.text == whole[: 4 * MB]
    assert seen.tokens == len(whole) // BYTES_PER_TOKEN
    # The bytes of the beginning, and its text.
    assert most < 9 * MB
