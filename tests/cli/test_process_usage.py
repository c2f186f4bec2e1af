"""smg-bench's reading of /proc: the whole tree, ended children included, and no process but those."""

import os
import subprocess
import sys

import pytest

from smg.cli import process_usage

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def write(proc, pid, parent, name="x", ticks=(0, 0, 0, 0), pages=0, cmdline=b""):
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    before = " ".join(["S", str(parent), *["0"] * 9])
    between = " ".join(["0"] * 6)
    text = f"{pid} ({name}) {before} {' '.join(map(str, ticks))} {between} {pages} 0 0"
    (folder / "stat").write_text(text)
    (folder / "cmdline").write_bytes(cmdline)


def test_a_process_is_read_with_a_name_that_has_brackets(tmp_path):
    write(tmp_path, 7, 1, name="a ) b", ticks=(1, 2, 3, 4), pages=5)
    process = process_usage.read(7, tmp_path)
    assert (process.pid, process.parent, process.command) == (7, 1, "a ) b")
    assert process.cpu == pytest.approx(10 / TICK)
    assert process.rss == 5 * PAGE


@pytest.mark.parametrize(
    ("cmdline", "title"),
    [
        (b"/usr/bin/smg-engine\0llama\0", "smg-engine"),
        (b"/venv/bin/python\0/venv/bin/smg-server\0--port\x001\0", "smg-server"),
        (b"python3\0-X\0importtime\0-m\0smg.server\0", "importtime"),
        (b"python3\0-m\0smg.server\0", "smg.server"),
        (b"", "kernel"),
    ],
)
def test_commands_have_short_names(tmp_path, cmdline, title):
    write(tmp_path, 7, 1, name="kernel", cmdline=cmdline)
    assert process_usage.read(7, tmp_path).command == title


def test_the_tree_has_all_descendants_and_nobody_else(tmp_path):
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1), (9, 12)):
        write(tmp_path, pid, parent)
    (tmp_path / "self").mkdir()
    found = [process.pid for process in process_usage.tree(10, tmp_path)]
    assert found[0] == 10
    assert sorted(found) == [9, 10, 11, 12]


def test_usage_counts_what_was_added_by_old_new_and_ended_children(tmp_path):
    write(tmp_path, 10, 1, name="top", ticks=(100, 0, 0, 0), pages=256)
    write(tmp_path, 11, 10, name="kid", ticks=(50, 50, 0, 0), pages=256)
    meter = process_usage.Meter(10, tmp_path)
    write(tmp_path, 10, 1, name="top", ticks=(110, 0, TICK, 0), pages=512)  # a child of a second has ended
    write(tmp_path, 11, 10, name="kid", ticks=(50, 50 + TICK, 0, 0), pages=256)
    write(tmp_path, 12, 10, name="kid", ticks=(TICK, 0, 0, 0), pages=256)
    usage = meter.usage()
    assert usage.processes == 3
    assert usage.cpu_seconds_by_command == {"top": pytest.approx(1 + 10 / TICK), "kid": pytest.approx(2)}
    assert usage.cpu_seconds == pytest.approx(3 + 10 / TICK)
    assert usage.rss_mib_peak == pytest.approx(1024 * PAGE / (1 << 20), abs=0.1)


def test_memory_that_was_given_back_is_still_the_peak(tmp_path):
    write(tmp_path, 10, 1, pages=2560)
    meter = process_usage.Meter(10, tmp_path)
    write(tmp_path, 10, 1, pages=1)
    assert meter.usage().rss_mib_peak == pytest.approx(2560 * PAGE / (1 << 20), abs=0.1)


def test_a_process_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ProcessLookupError, match="no process 10"):
        process_usage.Meter(10, tmp_path)


def test_a_real_child_is_found():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in [process.pid for process in process_usage.tree(os.getpid())]
        assert process_usage.read(child.pid).rss > 0
    finally:
        child.communicate(b"\n")
