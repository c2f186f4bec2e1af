"""Headers of gRPC calls to HPACK and back (RFC 7541; spec engine-contract 4.4)."""

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.errors import GatewayError
from smg.engines.transport.h2_headers import HeaderDecoder, request_head, request_tail

NAMES = st.sampled_from([":status", "content-type", "grpc-status", "grpc-message", "x-a", "x-b", "x-c"])
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from(["0", "200", "application/grpc", "", "v" * 200])), max_size=4)


@given(st.lists(FIELDS, max_size=30), st.sampled_from([4096, 100, 0]))
def test_remembered_blocks_are_what_they_would_be_decoded_to(blocks, table_size):
    encoder, ours, plain = hpack.Encoder(), HeaderDecoder(), hpack.Decoder()
    encoder.header_table_size = table_size
    for fields in blocks:
        for number in range(2):
            # The second time as literals that may not be indexed.
            block = encoder.encode([(name, value, number == 1) for name, value in fields])
            assert list(ours.decode(block).fields) == plain.decode(block, raw=True)


def test_a_changed_table_changes_what_a_reference_means():
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01a\x01x")
    assert decoder.decode(b"\xbe").fields == decoder.decode(b"\xbe").fields == ((b"a", b"x"),)
    decoder.decode(b"\x40\x01b\x01y")
    assert decoder.decode(b"\xbe").fields == ((b"b", b"y"),)
    assert decoder.decode(b"\xbf\xbe").fields == ((b"a", b"x"), (b"b", b"y"))


def test_a_literal_that_enters_no_table_is_remembered_with_what_it_refers_to(monkeypatch):
    """Trailers of gRPC core: a reference to the status, and the message, empty and never indexed."""
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x0bgrpc-status\x010")
    trailers = b"\xbe\x00\x0cgrpc-message\x00"
    told = decoder.decode(trailers)
    assert told.fields == ((b"grpc-status", b"0"), (b"grpc-message", b""))
    monkeypatch.setattr(decoder, "_decoder", None)  # is not asked again
    assert decoder.decode(trailers) is told


def test_references_behind_a_literal_change_with_the_table():
    decoder = HeaderDecoder()
    block = b"\x10\x01n\x01v\xbe"
    for name in (b"a", b"b"):
        decoder.decode(b"\x40\x01" + name + b"\x01x")
        assert [decoder.decode(block).fields for _ in range(2)] == [((b"n", b"v"), (name, b"x"))] * 2


@given(st.binary(max_size=60))
def test_any_bytes_are_headers_or_a_value_error(block):
    try:
        fields = HeaderDecoder().decode(block).fields
    except ValueError:
        return
    assert all(isinstance(part, bytes) for field in fields for part in field)


@given(
    st.text("abcdefghijklmnopqrstuvwxyz/.", min_size=1, max_size=300),
    st.dictionaries(st.from_regex(r"x-[a-z-]{0,20}", fullmatch=True), st.text("az09-=, ;", max_size=400), max_size=5),
    st.none() | st.floats(0.001, 1e9),
)
def test_requests_are_valid_blocks(path, metadata, timeout):
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    decoder.header_table_size = 4096
    fields = decoder.decode(request_head(True, "host:1", path) + request_tail(timeout, metadata))
    found = dict(fields)
    assert found[":path"] == path
    assert (found[":scheme"], found[":authority"], found["te"]) == ("https", "host:1", "trailers")
    assert {name: found[name] for name in metadata} == metadata
    assert ("grpc-timeout" in found) == (timeout is not None)
    if timeout is not None:
        assert len(found["grpc-timeout"]) <= 9  # at most eight digits
    assert [name for name, _ in fields[:4]] == [":method", ":scheme", ":path", ":authority"]


@pytest.mark.parametrize(
    ("name", "value"), [("A", "x"), ("é", "x"), ("a", "é"), ("a", "x\ny"), ("a", "\x7f"), ("", "x")]
)
def test_what_no_header_may_hold(name, value):
    with pytest.raises(GatewayError):
        request_tail(None, {name: value})
