"""Forms: read where they lie, patched without touching the rest (RFC 7578)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.errors import GatewayError
from smg.engines.http.form import Form

TYPE = "multipart/form-data; boundary=xYz"
FILE = b"\r\n--xY\r\x00--xYz\r\n-\xff"


def body(*parts: bytes) -> bytes:
    return b"".join(b"--xYz\r\n" + part + b"\r\n" for part in parts) + b"--xYz--\r\n"


def field(name: str, value: bytes) -> bytes:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value


SPEECH = b'Content-Disposition: form-data; name="file"; filename="a b.wav"\r\nContent-Type: audio/x-wav\r\n\r\n' + FILE
WHOLE = body(field("model", b"m"), SPEECH, field("tag", b"1"), field("tag", "ü".encode()), field("empty", b""))


def test_parts_are_told_apart():
    form = Form(WHOLE, TYPE)
    file = form.part("file")
    assert (file.filename, file.content_type, form.content(file)) == ("a b.wav", "audio/x-wav", FILE)
    assert (form.text("model"), list(form.values("tag")), form.text("empty")) == ("m", ["1", "ü"], "")
    assert (form.part("none"), form.text("none"), form.text("file")) == (None, "", "")
    assert form.size == len(WHOLE)


def test_what_is_not_replaced_stays_byte_for_byte():
    form = Form(WHOLE, TYPE)
    assert form.body()[0] is WHOLE
    assert form.body(none="x") == [WHOLE]
    changed = b"".join(form.body(model="longer ü", empty="now"))
    expected = body(
        field("model", "longer ü".encode()),
        SPEECH,
        field("tag", b"1"),
        field("tag", "ü".encode()),
        field("empty", b"now"),
    )
    assert changed == expected


@pytest.mark.parametrize("boundary", ['boundary="xYz"', "charset=utf-8; boundary=xYz", "Boundary=xYz"])
def test_the_boundary_may_be_written_in_all_ways(boundary):
    assert Form(WHOLE, f"Multipart/Form-Data; {boundary}").text("model") == "m"


def test_text_around_the_form_is_no_part():
    assert Form(b"\r\n" + WHOLE + b"epilogue", TYPE).text("model") == "m"


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"{}", "application/json", 415),
        (b"{}", "", 415),
        (WHOLE, "multipart/form-data", 400),
        (b"", TYPE, 400),
        (b"garbage", TYPE, 400),
        (WHOLE[:-20], TYPE, 400),
        (WHOLE, "multipart/form-data; boundary=other", 400),
        (body(b"no header at all"), TYPE, 400),
        (body(b"Content-Disposition: form-data\r\n\r\nnameless"), TYPE, 400),
        (body(*[field("a", b"")] * 300), TYPE, 400),
        (WHOLE, "multipart/form-data; boundary=" + "x" * 500, 400),
    ],
)
def test_what_is_no_form_is_the_clients_error(content, content_type, status):
    with pytest.raises(GatewayError) as caught:
        Form(content, content_type)
    assert caught.value.status == status


@pytest.mark.parametrize("value", [b"\xff", b"x" * ((1 << 20) + 1)])
def test_a_field_that_is_no_text_is_named(value):
    with pytest.raises(GatewayError) as caught:
        Form(body(field("model", value)), TYPE).text("model")
    assert (caught.value.status, caught.value.param) == (400, "model")


CONTENTS = st.binary(max_size=60).map(lambda data: data.replace(b"--xYz", b"--xY"))


@given(st.lists(st.tuples(st.sampled_from("abc"), CONTENTS | st.just(b"\r\n--xY")), min_size=1, max_size=6))
def test_whatever_is_put_in_comes_out(given_parts):
    form = Form(body(*(field(name, value) for name, value in given_parts)), TYPE)
    for name in "abc":
        expected = next((value for found, value in given_parts if found == name), None)
        part = form.part(name)
        assert (None if part is None else form.content(part)) == expected
    rebuilt = Form(b"".join(form.body(a="new")), TYPE)
    assert rebuilt.text("a") == ("new" if form.part("a") else "")


PIECES = [b"--xYz", b"\r\n", b"--", b"Content-Disposition: form-data; name=", b'"a"', b":", b"\n", b"x", b"\xff", b"\0"]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=5), max_size=30).map(b"".join))
def test_no_body_is_more_than_the_client_s_error(data):
    for content in (data, b"--xYz\r\n" + data + b"\r\n--xYz--\r\n"):
        try:
            form = Form(content, TYPE)
        except GatewayError as error:
            assert error.status == 400
        else:
            assert form.body() == [content]


def test_nothing_is_logged_of_what_clients_send(caplog):
    with pytest.raises(GatewayError):
        Form(b"--xYz\r\nbad header\r\n\r\n", TYPE)
    assert not caplog.records
