"""Bodies: lenient where clients differ, exact about what is wrong and where (case OA-07)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core import wire
from smg.core.errors import GatewayError


class Text(msgspec.Struct):
    text: str


class Image(msgspec.Struct):
    image_url: dict[str, str]
    detail: int | None = None


class Body(msgspec.Struct):
    n: int | None = None
    temperature: float | None = None
    messages: list[dict[str, str]] | None = None


PARTS = wire.Union({"text": Text, "image_url": Image}, default="text")


def error_of(call, *arguments) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        call(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"n": 100.0}', Body(n=100)),
        (b'{"n": null, "later": {"x": 1}}', Body()),
        (b'{"temperature": 1}', Body(temperature=1.0)),
        (b'{"messages": [{"content": "ok \\ud83d\\ude00"}]}', Body(messages=[{"content": "ok 😀"}])),
    ],
)
def test_lenient_where_clients_differ(body, expected):
    assert wire.decode(body, Body) == expected


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b'{"n": 1.5}', "invalid_value", "n"),
        (b'{"n": true}', "invalid_value", "n"),
        (b'{"n": "1"}', "invalid_value", "n"),
        (b'{"messages": [{"content": 3}]}', "invalid_value", "messages[0]..."),
        (b"[]", "invalid_value", None),
        (b"{", "json_parse_error", None),
        (b'{"temperature": NaN}', "json_parse_error", None),
        (b'{"n": "\xff"}', "json_parse_error", None),
        (b"[" * 100_000, "json_parse_error", None),
        (b"", "json_parse_error", None),
    ],
)
def test_wrong_bodies_name_the_field(body, code, param):
    error = error_of(wire.decode, body, Body)
    assert (error.code, error.status) == (code, 400)
    if param is not None:
        assert error.param is not None
        assert error.param.startswith(param.removesuffix("..."))


@pytest.mark.parametrize("escape", ["\\ud83d", "\\udcf0", "\\ud83d x", "\\ude00\\ud83d"])
def test_OA_07_unpaired_surrogates_name_the_field(escape):
    body = f'{{"messages": [{{"role": "user", "content": "x {escape}"}}]}}'.encode()
    error = error_of(wire.decode, body, Body)
    assert (error.code, error.status, error.param) == ("invalid_value", 400, "messages[0].content")
    assert "surrogate" in error.message


def test_union_default_unknown_and_paths():
    parts = PARTS.many(
        [{"text": "a"}, {"type": "video", "v": 1}, {"type": "image_url", "image_url": {"url": "u"}}], "c"
    )
    assert parts == [Text("a"), wire.Unknown("video", {"type": "video", "v": 1}), Image({"url": "u"})]
    assert error_of(PARTS.many, [{"type": "text"}], "messages[2].content").param == "messages[2].content[0].text"
    assert error_of(PARTS.many, [{"type": "text", "text": 5}], "m").param == "m[0].text"
    assert error_of(PARTS.many, ["x"], "m").param == "m[0]"
    assert error_of(PARTS.many, "x", "m").param == "m"
    assert error_of(PARTS.one, {"type": 7}, "m").param == "m.type"


def test_union_without_default_needs_the_tag():
    roles = wire.Union({"user": Text}, tag="role")
    assert "role" in error_of(roles.one, {"text": "a"}, "messages[0]").message


def test_union_accepts_integral_floats():
    assert PARTS.one({"type": "image_url", "image_url": {}, "detail": 2.0}, "p") == Image({}, 2)


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_a_gateway_error(body):
    try:
        wire.decode(body, Body)
    except GatewayError as error:
        assert error.status == 400
        assert error.message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), lambda x: st.lists(x)
    )
)
def test_loads_agrees_with_msgspec(value):
    try:
        body = msgspec.json.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return
    assert wire.loads(body) == msgspec.json.decode(body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"temperature": 1e999}', "temperature"),
        (b'{"temperature": -1e400}', "temperature"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "seed"),
        (b'{"items": [{"seed": 1e999}]}', "items[0].seed"),
    ],
)
def test_numbers_beyond_all_bounds_are_json_and_name_the_field(body, param):
    class Item(msgspec.Struct):
        seed: int = 0

    class Body(msgspec.Struct):
        temperature: float | None = None
        seed: int | None = None
        items: list[Item] = []

    error = error_of(wire.decode, body, Body)
    assert (error.code, error.message, error.param) == ("invalid_value", "the number is out of range", param)
    assert error_of(wire.loads, body).param == param


def test_a_member_that_is_missing_is_the_field():
    class Item(msgspec.Struct):
        name: str

    class Body(msgspec.Struct):
        items: list[Item]

    for body, param in ((b"{}", "items"), (b'{"items": [{"name": "x"}, {}]}', "items[1].name")):
        error = error_of(wire.decode, body, Body)
        assert (error.code, error.param) == ("invalid_value", param)
        assert "missing required field" in error.message
