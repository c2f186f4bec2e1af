"""Which policy a model's requests are routed by, and therefore whose KV events are worth following (spec routing 7)."""

from smg.fleet.policies import Conflicts, policies_over, policy_of
from smg.fleet.records import ModelRecord, WorkerRecord
from smg.fleet.steps import at_once

FAST = ModelRecord(id="m", aliases=["short"])
OTHER = ModelRecord(id="n", policy="random")


def worker(name: str, *models: str, policy: str = "") -> WorkerRecord:
    labels = {"policy": policy} if policy else {}
    return WorkerRecord(id=name, url=f"grpc://{name}", slot=0, models=list(models), labels=labels)


def test_what_was_set_for_the_model_wins_over_labels():
    assert policy_of(OTHER, [worker("a", "n", policy="cache_aware")]) == "random"


def test_the_first_worker_that_names_one_decides_for_all_of_its_model():
    plain, named = worker("a", "m"), worker("b", "short", policy="cache_aware: cache_threshold=0.5")
    fleet = [plain, named, worker("c", "m", policy="random")]
    for each in fleet:
        assert policies_over(each, [FAST, OTHER], fleet) == ["cache_aware: cache_threshold=0.5"]


def test_a_worker_of_several_models_gets_requests_by_the_policy_of_each():
    both = worker("a", "m", "n")
    assert policies_over(both, [FAST, OTHER], [both]) == ["", "random"]


def test_a_worker_whose_models_are_not_known_has_its_own():
    assert policies_over(worker("a", policy="random"), [FAST], []) == ["random"]
    assert policies_over(worker("a"), [FAST], []) == [""]


def test_workers_that_do_not_agree_are_told_of_once_by_whatever_name_they_serve_a_model(caplog):
    fleet = [
        worker("a", "m", policy="random"),
        worker("b", "short", "m", policy="random"),
        worker("c", "n", policy="least_load"),
        worker("d", "n"),
    ]
    conflicts = Conflicts()
    at_once(conflicts.look([FAST, OTHER], fleet))
    assert not caplog.records
    fleet.append(worker("e", "short", policy="bucket"))
    for _ in range(2):
        at_once(conflicts.look([FAST, OTHER], fleet))
    (record,) = (vars(record) for record in caplog.records)
    assert (record["model"], record["policy"], record["ignored"]) == ("m", "random", ["bucket"])
    assert record["worker"] == "grpc://a"
    fleet.append(worker("f", "n", policy="bucket"))
    at_once(conflicts.look([FAST, OTHER], fleet))
    assert "what was set for the model wins" in caplog.messages[-1]
