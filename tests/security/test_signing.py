"""Signatures: whose they are, and where their key comes from."""

import base64
import os
import stat

import pytest

from smg.config.settings import SecuritySettings, ServerSettings, Settings
from smg.security import signing
from smg.security.signing import KEY_FILE, Signer, keep_key


def settings(state, key=None) -> Settings:
    return Settings(server=ServerSettings(state_dir=str(state)), security=SecuritySettings(signing_key=key))


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As a gateway that has just been started."""
    monkeypatch.setattr(signing, "_kept", {})


@pytest.fixture
def signer(tmp_path):
    return Signer(settings(tmp_path, "secret"))


def test_a_signature_holds_for_its_text_and_its_tenant_only(signer):
    made = signer.sign("acme", "I thought so. 😀")
    assert signer.verify("acme", "I thought so. 😀", made)
    assert not signer.verify("other", "I thought so. 😀", made)
    assert not signer.verify("acme", "I thought so.", made)
    # The border between tenant and text is signed, too.
    assert not signer.verify("acmeI", " thought so. 😀", made)


@pytest.mark.parametrize("bad", ["", "x", "é\udc80", "A" * 44, base64.b64encode(bytes(33)).decode()])
def test_what_is_no_signature_of_ours_is_none(signer, bad):
    assert not signer.verify("acme", "text", bad)


def test_who_is_known_by_an_address_only_may_have_another_one_tomorrow(signer):
    assert signer.verify("ip:10.0.0.2", "text", signer.sign("ip:10.0.0.1", "text"))
    assert not signer.verify("header:acme", "text", signer.sign("ip:10.0.0.1", "text"))


def test_gateways_with_the_same_secret_agree_wherever_they_run(tmp_path):
    first, second, third = (Signer(settings(tmp_path / name, key)) for name, key in ("as", "bs", "ct"))
    assert second.verify("t", "text", first.sign("t", "text"))
    assert not third.verify("t", "text", first.sign("t", "text"))


def test_the_key_is_kept_for_its_owner_alone_and_read_again_after_a_restart(tmp_path):
    keep_key(settings(tmp_path / "state"))
    made = Signer(settings(tmp_path / "state")).sign("t", "text")
    file = tmp_path / "state" / KEY_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == [KEY_FILE]
    signing._kept.clear()
    keep_key(settings(tmp_path / "state"))
    assert Signer(settings(tmp_path / "state")).verify("t", "text", made)


def test_processes_that_are_forked_later_have_the_key_although_the_file_is_gone(tmp_path):
    keep_key(settings(tmp_path))
    made = Signer(settings(tmp_path)).sign("t", "text")
    (tmp_path / KEY_FILE).unlink()
    assert Signer(settings(tmp_path)).verify("t", "text", made)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_file_that_holds_no_key_is_replaced(tmp_path, content):
    (tmp_path / KEY_FILE).write_bytes(content)
    keep_key(settings(tmp_path))
    assert (tmp_path / KEY_FILE).read_bytes() == signing._kept[str(tmp_path)]
    assert len(signing._kept[str(tmp_path)]) == 32


def test_where_nothing_can_be_kept_the_processes_agree_at_least(tmp_path, caplog):
    (tmp_path / "file").touch()
    place = settings(tmp_path / "file" / "state")
    keep_key(place)
    assert Signer(place).verify("t", "text", Signer(place).sign("t", "text"))
    assert "no key can be kept" in caplog.text


def test_with_a_secret_nothing_is_written(tmp_path):
    keep_key(settings(tmp_path, "secret"))
    assert os.listdir(tmp_path) == []
