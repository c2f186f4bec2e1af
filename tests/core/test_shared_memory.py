"""Files in shared memory: whose they are, that they hold what was written, that nobody's stay (spec multimodal 13)."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from smg.core import shared_memory
from smg.core.shared_memory import DIRECTORY, Folder

# A process that makes three files, says so, and waits to be killed.
HOLDER = """
import pathlib, sys, time
from smg.core import shared_memory
shared_memory.DIRECTORY = pathlib.Path(sys.argv[1])
folder = shared_memory.Folder()
print(*(folder.create()[0] for _ in range(3)), flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder():
    made = Folder()
    yield made
    made.close()


def written(folder, *pieces):
    """The name of a file with these buffers."""
    name, descriptor = folder.create()
    try:
        shared_memory.fill(descriptor, pieces)
    finally:
        os.close(descriptor)
    return name


def test_a_file_holds_all_buffers_in_order_and_is_this_users_alone(folder):
    pieces = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    name = written(folder, *pieces, memoryview(b"end"))
    path = DIRECTORY / name
    assert path.read_bytes() == b"".join(pieces) + b"end"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert name.startswith("smg-mm-")
    assert f"-{os.getpid()}-" in name
    assert folder.owner == f"smg:{os.getpid()}"


def test_no_bytes_are_a_file_too(folder):
    assert (DIRECTORY / written(folder, b"")).stat().st_size == 0


def test_no_file_is_made_where_there_is_one(folder):
    name, descriptor = folder.create()
    os.close(descriptor)
    beginning, _, number = name.rpartition("-")
    following = DIRECTORY / f"{beginning}-{int(number) + 1}"
    following.symlink_to("/dev/null")
    try:
        with pytest.raises(FileExistsError):
            folder.create()
    finally:
        following.unlink()


def test_what_has_no_room_is_told_before_anything_is_written(folder):
    name, descriptor = folder.create()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            shared_memory.fill(descriptor, [b"x" * 8_000, b"y" * 8_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        os.close(descriptor)
    assert (DIRECTORY / name).stat().st_size == 0


def test_closing_and_removing_leave_nothing(folder):
    names = [written(folder, b"x") for _ in range(3)]
    shared_memory.remove([*names[:2], "smg-mm-of-nobody"])
    assert [(DIRECTORY / name).exists() for name in names] == [False, False, True]
    other = Folder()
    left = written(other, b"y")
    other.close()
    assert not (DIRECTORY / left).exists()
    assert not list(DIRECTORY.glob(f"{left.rpartition('-')[0]}*"))


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A directory that no other process sweeps."""
    monkeypatch.setattr(shared_memory, "DIRECTORY", tmp_path)
    return tmp_path


def test_files_of_a_killed_process_are_swept_and_those_of_a_living_one_are_not(elsewhere):
    folder = Folder()
    mine = {written(folder, b"x"), *(path.name for path in elsewhere.iterdir())}
    (elsewhere / f"smg-mm-not-ours-{os.getpid()}").touch()
    command = [sys.executable, "-c", HOLDER, str(elsewhere)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        names = process.stdout.readline().split()
        assert shared_memory.sweep() == 0
        assert len(names) == 3
        assert all((elsewhere / name).exists() for name in names)
        process.send_signal(signal.SIGKILL)
    assert shared_memory.sweep() == 3
    # Not even the lock of the dead is left.
    assert {path.name for path in elsewhere.iterdir()} == {*mine, f"smg-mm-not-ours-{os.getpid()}"}
    folder.close()


def test_a_process_that_has_let_go_of_its_lock_owns_nothing(elsewhere):
    (elsewhere / f"smg-mm-g{'0' * 16}-{os.getpid()}-7").write_bytes(b"x")
    assert shared_memory.sweep() == 1
    assert not list(elsewhere.iterdir())


def test_the_namespace_is_that_of_engines():
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert shared_memory.namespace_id() == f"{boot}:{os.stat('/dev/shm').st_dev}"


def test_where_there_is_no_shared_memory_there_is_no_namespace_and_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(shared_memory, "DIRECTORY", tmp_path / "none")
    assert shared_memory.namespace_id() == ""
    with pytest.raises(OSError, match="No such file"):
        Folder()
    with pytest.raises(OSError, match="No such file"):
        shared_memory.sweep()
