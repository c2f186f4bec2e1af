"""Which models the line ``smg-server serving …`` names."""

import pytest

from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord
from smg.server.supervisor import servable


def worker(slot, *models, **fields):
    return WorkerRecord(f"w{slot}", slot, f"grpc://w{slot}", models=list(models), **{"status": "ready"} | fields)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker(1, "a")], ["a"]),
        ([worker(1, "alias of a")], ["a"]),
        ([worker(1, "without")], []),
        ([worker(1, "without", kind="raw")], ["without"]),
        ([worker(1, "a"), worker(2, "without", kind="raw")], ["a", "without"]),
        ([worker(1, "a", status="pending"), worker(2, "without", kind="raw")], ["without"]),
        ([worker(1, "a", role="prefill")], []),
        ([], []),
    ],
)
def test_models_whose_engines_are_ready_and_whose_text_can_be_taken(workers, expected):
    models = [ModelRecord("a", aliases=["alias of a"], tokenizer_dir="/a"), ModelRecord("without")]
    assert servable(FleetSnapshot(version=1, workers=workers, models=models)) == expected
