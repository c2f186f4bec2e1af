"""Cases AU-01 (which header, which scheme) and AU-02 (admin calls from the public side)."""

import pytest

from smg.config.settings import SecuritySettings
from smg.core.errors import GatewayError
from smg.security.access import Gate, is_loopback
from smg.security.keys import KeySet

OPEN = Gate(SecuritySettings())
API = Gate(SecuritySettings(api_key=("k1", "k1b")))
BOTH = Gate(SecuritySettings(api_key=("k1",), admin_key=("root",)))
ADMIN = Gate(SecuritySettings(admin_key=("root",)))
LOCAL, REMOTE = "127.0.0.1", "203.0.113.9"


def status(gate: Gate, access: str, headers: dict[str, str], peer: str = REMOTE) -> int:
    try:
        gate.check(access, headers, peer)
    except GatewayError as error:
        assert error.code == {401: "invalid_api_key", 403: "permission_denied"}[error.status]
        assert ("www-authenticate" in error.headers()) == (error.status == 401)
        return error.status
    return 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": "Bearer k1"}, 200),
        ({"authorization": "bearer k1"}, 200),
        ({"authorization": "BEARER   k1 "}, 200),
        ({"x-api-key": "k1"}, 200),
        ({"x-api-key": "k1b"}, 200),
        ({"authorization": "Basic abc", "x-api-key": "k1"}, 200),
        ({"authorization": "Bearer k2", "x-api-key": "k1"}, 200),
        ({"authorization": "Bearer root"}, 200),
        ({"authorization": "Bearer k2"}, 401),
        ({"authorization": "Bearer K1"}, 401),
        ({"authorization": "Bearer k1k1b"}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "k1"}, 401),
        ({"x-api-key": ""}, 401),
        ({"x-api-key": "k\udc31"}, 401),
        ({}, 401),
    ],
)
def test_AU_01_headers_and_schemes(headers, expected):
    gate = Gate(SecuritySettings(api_key=("k1", "k1b"), admin_key=("root",)))
    assert status(gate, "data", headers) == expected


KEY, ROOT, WRONG, NONE = {"x-api-key": "k1"}, {"x-api-key": "root"}, {"x-api-key": "no"}, {}


@pytest.mark.parametrize(
    ("gate", "headers", "remote", "local"),
    [
        (OPEN, NONE, 403, 200),
        (OPEN, WRONG, 403, 200),
        (API, NONE, 401, 401),
        (API, WRONG, 401, 401),
        (API, KEY, 403, 200),
        (BOTH, NONE, 401, 401),
        (BOTH, KEY, 403, 403),
        (BOTH, ROOT, 200, 200),
        (ADMIN, NONE, 401, 401),
        (ADMIN, ROOT, 200, 200),
    ],
)
def test_AU_02_admin_routes(gate, headers, remote, local):
    assert status(gate, "admin", headers, REMOTE) == remote
    assert status(gate, "admin", headers, LOCAL) == local


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
def test_AU_02_a_proxy_on_this_machine_does_not_make_its_callers_local(header):
    assert status(OPEN, "admin", {header: "127.0.0.1"}, LOCAL) == 403
    assert status(API, "admin", {header: "127.0.0.1", **KEY}, LOCAL) == 403
    assert status(BOTH, "admin", {header: "127.0.0.1", **ROOT}, LOCAL) == 200


@pytest.mark.parametrize("gate", [OPEN, API, BOTH, ADMIN])
def test_public_routes_are_open(gate):
    assert status(gate, "public", {}) == 200
    assert status(gate, "public", WRONG) == 200


def test_data_routes_are_open_when_only_an_admin_key_is_configured():
    assert status(ADMIN, "data", {}) == 200


def test_the_principal_tells_the_key_and_never_is_it():
    principal = API.check("data", {"x-api-key": "k1"}, REMOTE)
    assert principal.name.startswith("key-")
    assert "k1" not in principal.name
    assert not principal.admin
    assert API.check("data", {"x-api-key": "k1b"}, REMOTE).name != principal.name
    assert BOTH.check("data", {"x-api-key": "root"}, REMOTE).admin
    assert OPEN.check("data", {}, REMOTE).name == "anonymous"


def test_starting_without_any_key_warns():
    assert "--api-key" in (OPEN.warning() or "")
    assert API.warning() is BOTH.warning() is ADMIN.warning() is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_loopback_addresses(address, expected):
    assert is_loopback(address) is expected


def test_a_key_set_compares_whole_keys():
    keys = KeySet(["abc"])
    assert keys.match("abc") is not None
    assert [keys.match(other) for other in ("ab", "abcd", "", "ABC")] == [None] * 4
    assert not KeySet([])


class TestTenants:
    """Whose limits count (spec api-and-ops 4.7)."""

    def tenant(self, headers: dict[str, str], peer: str = REMOTE, **settings: object) -> str:
        return Gate(SecuritySettings(**settings)).check("data", headers, peer).tenant  # type: ignore[arg-type]

    def test_a_tenants_key_tells_its_name(self):
        keys = {"tenant_api_key": ("acme:k:1", "other:k2"), "api_key": ("k3",)}
        assert self.tenant({"x-api-key": "k:1"}, **keys) == "acme"
        assert self.tenant({"authorization": "Bearer k2"}, **keys) == "other"
        assert self.tenant({"x-api-key": "k3"}, **keys) == KeySet(["k3"]).match("k3")

    def test_with_tenants_keys_alone_nobody_gets_in_without_one(self):
        gate = Gate(SecuritySettings(tenant_api_key=("acme:k1",)))
        assert [status(gate, "data", headers) for headers in ({}, {"x-api-key": "k2"}, {"x-api-key": "k1"})] == [
            401,
            401,
            200,
        ]
        assert gate.warning() is None
        assert gate.check("data", {"x-api-key": "k1"}, REMOTE).admin is False

    def test_without_keys_it_is_the_address(self):
        assert self.tenant({}) == f"ip:{REMOTE}"
        assert self.tenant({"x-smg-tenant-id": "acme"}) == f"ip:{REMOTE}"
        assert self.tenant({}, peer="") == "anonymous"

    def test_a_header_is_believed_only_where_it_is_trusted_and_no_key_tells(self):
        headers = {"x-smg-tenant-id": "acme", "x-team": "blue"}
        assert self.tenant(headers, trust_tenant_header=True) == "header:acme"
        assert self.tenant(headers, trust_tenant_header=True, tenant_header_name="X-Team") == "header:blue"
        assert self.tenant({}, trust_tenant_header=True) == f"ip:{REMOTE}"
        keyed = headers | {"x-api-key": "k"}
        assert self.tenant(keyed, trust_tenant_header=True, tenant_api_key=("real:k",)) == "real"
