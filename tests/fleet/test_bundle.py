"""Tokenizer bundles from engines that may be broken or hostile (spec engine-contract 2.10, 10.1 item 12)."""

import asyncio
import hashlib
import io
import stat
import struct
import zipfile

import pytest

from smg.fleet.bundle import BundleError, Limits, fetch


def archive(files=None, *entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in (files or {}).items():
            bundle.writestr(name, data)
        for entry, data in entries:
            bundle.writestr(entry, data)
    return out.getvalue()


GOOD = archive({"tokenizer.json": '{"a": 1}', "config.json": "{}"})


async def stream(data, digest=None, piece=100):
    """Chunks as an engine sends them: the digest (by default the right one) on the last only."""
    digest = hashlib.sha256(data).hexdigest() if digest is None else digest
    for start in range(0, len(data), piece):
        last = start + piece >= len(data)
        yield data[start : start + piece], digest if last else ""


async def refused(tmp_path, data, text, limits=None, **kwargs):
    chunks = data if hasattr(data, "__anext__") else stream(data, **kwargs)
    with pytest.raises(BundleError, match=text):
        await fetch(chunks, tmp_path, limits or Limits())
    assert list(tmp_path.iterdir()) == []  # nothing half done stays behind


async def test_a_sound_bundle_is_unpacked_under_its_digest(tmp_path):
    cache = tmp_path / "deep" / "tokenizers"
    bundle = await fetch(stream(GOOD), cache)
    assert bundle.digest == hashlib.sha256(GOOD).hexdigest()
    assert bundle.directory == cache / bundle.digest
    assert {path.name: path.read_text() for path in bundle.directory.iterdir()} == {
        "tokenizer.json": '{"a": 1}',
        "config.json": "{}",
    }
    assert [path.name for path in cache.iterdir()] == [bundle.digest]


async def test_the_same_bundle_again_is_taken_from_the_cache(tmp_path):
    first = await fetch(stream(GOOD), tmp_path)
    inode = first.directory.stat().st_ino
    results = await asyncio.gather(*(fetch(stream(GOOD), tmp_path) for _ in range(4)))
    assert all(result == first for result in results)
    assert first.directory.stat().st_ino == inode


async def test_two_processes_at_once_make_one_directory(tmp_path):
    results = await asyncio.gather(*(fetch(stream(GOOD), tmp_path) for _ in range(4)))
    assert len(set(results)) == 1
    assert len(list(tmp_path.iterdir())) == 1


async def test_truncated(tmp_path):
    right = hashlib.sha256(GOOD).hexdigest()
    await refused(tmp_path, GOOD[:-30], "digest it came with", digest=right)
    await refused(tmp_path, GOOD, "without its digest", digest="")

    async def nothing():
        for chunk in ():
            yield chunk

    await refused(tmp_path, nothing(), "without its digest")


@pytest.mark.parametrize(
    "digest", ["0" * 64, "xyz", hashlib.sha256(GOOD).hexdigest().upper()], ids=["another", "short", "upper case"]
)
async def test_FIX_6_wrong_digest(tmp_path, digest):
    await refused(tmp_path, GOOD, "digest", digest=digest)


async def test_data_after_the_digest(tmp_path):
    async def chunks():
        yield GOOD, hashlib.sha256(GOOD).hexdigest()
        yield b"more", ""

    await refused(tmp_path, chunks(), "goes on after its digest")


async def test_more_than_may_be_received(tmp_path):
    await refused(tmp_path, GOOD, "larger than 50 bytes", Limits(received=50))


async def test_an_engine_that_takes_too_long(tmp_path):
    async def chunks():
        yield GOOD[:10], ""
        await asyncio.Event().wait()

    await refused(tmp_path, chunks(), "took longer", Limits(seconds=0.05))


async def test_a_zip_bomb_is_stopped_while_it_inflates(tmp_path):
    bomb = archive({"tokenizer.json": b"\0" * (2 << 20)})
    assert len(bomb) < 5000
    await refused(tmp_path, bomb, "unpacks to more", Limits(unpacked=1 << 20))
    # Many entries share one budget.
    await refused(
        tmp_path, archive({f"{n}.json": b"\0" * 600_000 for n in range(2)}), "unpacks to more", Limits(unpacked=1 << 20)
    )


async def test_headers_that_lie_about_the_size_do_not_help(tmp_path):
    data = bytearray(archive({"tokenizer.json": b"\0" * (2 << 20)}))
    size = struct.pack("<L", 2 << 20)
    place = data.find(size)
    while place >= 0:
        data[place : place + 4] = struct.pack("<L", 10)
        place = data.find(size)
    await refused(tmp_path, bytes(data), "sound zip|unpacks to more", Limits(unpacked=1 << 20))


@pytest.mark.parametrize(
    "name", ["../evil.json", "a/../../evil.json", "/etc/evil.json", "C:\\evil.json", "a\\..\\evil.json"]
)
async def test_traversal(tmp_path, name):
    await refused(tmp_path, archive({"tokenizer.json": "{}", name: "evil"}), "outside its directory")


async def test_links_and_devices(tmp_path):
    link = zipfile.ZipInfo("tokenizer.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    await refused(tmp_path, archive(None, (link, "/etc/passwd")), "no plain file")


async def test_too_many_entries(tmp_path):
    await refused(tmp_path, archive({f"{n}.json": "" for n in range(51)}), "more than 50 entries")
    # A directory whose count is a lie.
    data = bytearray(archive({f"{n}.json": "" for n in range(51)}))
    place = data.rfind(b"PK\x05\x06")
    data[place + 8 : place + 12] = struct.pack("<HH", 1, 1)
    await refused(tmp_path, bytes(data), "more than 50 entries")


async def test_directories_too_large_to_read(tmp_path):
    data = bytearray(GOOD)
    place = data.rfind(b"PK\x05\x06")
    data[place + 12 : place + 16] = struct.pack("<L", 100 << 20)
    await refused(tmp_path, bytes(data), "directory is too large")
    locator = b"PK\x06\x07" + bytes(16)
    await refused(tmp_path, GOOD[:place] + locator + GOOD[place:], "zip64")


async def test_the_same_name_twice(tmp_path):
    twice = archive(None, (zipfile.ZipInfo("a.json"), "1"), (zipfile.ZipInfo("b.json"), "2")).replace(
        b"b.json", b"a.json"
    )
    await refused(tmp_path, twice, "twice")


@pytest.mark.parametrize("data", [b"not a zip", b"PK\x05\x06", GOOD.replace(b"\x08\x00", b"\x63\x00")])
async def test_no_archive_at_all(tmp_path, data):
    await refused(tmp_path, data, "sound zip")
