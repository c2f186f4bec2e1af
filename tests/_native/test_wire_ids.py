"""The protobuf writer of a prompt's ids, against the generated contracts (spec engine-contract 3)."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg._native.wire_ids import with_ids

IDS = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 300) | st.integers(2**14 - 2, 2**21 + 2), max_size=200)
BORDERS = [0, 2**7 - 1, 2**7, 2**14 - 1, 2**14, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**30, 2**32 - 1]


@given(ids=IDS)
@example(ids=[])
@example(ids=BORDERS)
@example(ids=[5] * 300)
@example(ids=[*range(1023), 2**32 - 1])
@example(ids=[*range(1024), 2**32 - 1])
def test_the_generated_contract_reads_what_is_written(ids):
    message = pb.GenerateRequest(request_id="r", stream=True)
    read = pb.GenerateRequest.FromString(with_ids(message.SerializeToString(), ids, 2, 2))
    assert list(read.tokenized.input_ids) == ids
    message.tokenized.input_ids.extend(ids)
    # An empty list too: the field is there.
    message.tokenized.SetInParent()
    assert read == message


@given(ids=IDS)
@example(ids=[])
@example(ids=BORDERS)
def test_arrays_are_written_as_lists_are(ids):
    assert with_ids(b"before", array("I", ids), 2, 3) == with_ids(b"before", ids, 2, 3)


@pytest.mark.parametrize("other", [array("i", [1]), array("Q", [1]), b"abcd"])
def test_other_arrays_are_refused(other):
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        with_ids(b"", other, 2, 2)


@given(ids=IDS, outer=st.integers(1, 15), inner=st.integers(1, 15))
def test_it_is_as_short_as_what_the_library_writes(ids, outer, inner):
    assert len(with_ids(b"", ids, outer, inner)) == len(with_ids(b"", tuple(ids), 2, 2))
    packed = pb.TokenizedInput(input_ids=ids).SerializeToString()
    written = with_ids(b"", ids, 2, 2)
    assert written.endswith(packed)
    assert len(written) <= len(packed) + 1 + 5 + (0 if ids else 2)


@pytest.mark.parametrize("wrong", [-1, 2**32, -(2**40), 2**63, 2**200, -(2**200)])
def test_what_is_no_uint32_is_refused(wrong):
    with pytest.raises(ValueError, match="uint32"):
        with_ids(b"", [1, wrong, 2], 2, 2)


@pytest.mark.parametrize("wrong", ["1", None, 1.0])
def test_what_is_no_int_is_refused(wrong):
    with pytest.raises(TypeError):
        with_ids(b"", [1, wrong], 2, 2)


@pytest.mark.parametrize(("outer", "inner"), [(0, 2), (16, 2), (2, 0), (2, 16)])
def test_field_numbers_have_one_byte(outer, inner):
    with pytest.raises(ValueError, match="one byte"):
        with_ids(b"", [], outer, inner)
