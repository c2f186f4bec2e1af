"""Flags of a disaggregated fleet (spec api-and-ops 3.1 and 3.5)."""

import pytest

from smg.config import SettingsError, load
from smg.config.legs import Named, parse


def problems(*flags: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(list(flags), {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ((), []),
        (("grpc://a:1",), [Named("grpc://a:1", None)]),
        (("grpc://a:1", "8998", "grpc://b:1"), [Named("grpc://a:1", 8998), Named("grpc://b:1", None)]),
        (("grpc://a:1", "none"), [Named("grpc://a:1", None)]),
        (("grpc://a:1 8998", "grpc://b:1 8999"), [Named("grpc://a:1", 8998), Named("grpc://b:1", 8999)]),
    ],
)
def test_an_address_and_maybe_a_port(values, found):
    assert parse(values) == found


@pytest.mark.parametrize("values", ["8998", "grpc://a:1 1 2", "grpc://a:1 0", "a", "grpc://a:1 x"])
def test_anything_else_is_refused(values):
    with pytest.raises(ValueError, match="is n"):
        parse(values.split())


def test_flags_environment_and_file_say_the_same(tmp_path):
    flags = load(["--prefill", "grpc://a:1", "8998", "--prefill", "grpc://b:1", "--decode", "grpc://c:1"], {})
    environment = load([], {"SMG_PREFILL": "grpc://a:1 8998 grpc://b:1", "SMG_DECODE": "grpc://c:1"})
    file = tmp_path / "smg.yaml"
    file.write_text("disaggregation: {prefill: [grpc://a:1 8998, grpc://b:1], decode: [grpc://c:1]}\n")
    named = [parse(each.disaggregation.prefill) for each in (flags, environment, load(["--config", str(file)], {}))]
    assert named == [[Named("grpc://a:1", 8998), Named("grpc://b:1", None)]] * 3


def test_a_fleet_that_must_be_whole():
    assert "--decode: no such engine" in problems("--pd-disaggregation", "--prefill", "grpc://a:1")
    assert "--encode: no such engine" in problems(
        "--epd-disaggregation", "--prefill", "grpc://a:1", "--decode", "grpc://b:1"
    )
    # Its partner may be among the others, or come later.
    load(["--prefill", "grpc://a:1", "--worker-urls", "grpc://b:1"], {})


@pytest.mark.parametrize("backend", ["trtllm", "mlx"])
def test_contracts_without_pairs_are_refused(backend):
    text = problems("--backend", backend, "--prefill", "grpc://a:1", "--decode", "grpc://b:1")
    assert f"the {backend} contract cannot be split" in text


def test_only_tokenspeed_encodes():
    assert "tokenspeed" in problems("--backend", "sglang", "--encode", "grpc://a:1")


def test_one_address_has_one_role():
    assert "given twice" in problems("--prefill", "grpc://a:1", "--decode", "grpc://a:1")
    assert "nonsense" in problems("--prefill", "nonsense")
    assert "not an engine address" in problems("--decode", "ipc:///x")
    # What encodes over HTTP is not known.
    assert "not an engine address" in problems("--encode", "http://x:1")
