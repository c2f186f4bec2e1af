"""Two processes that map a prepared tokenizer have its pages once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from smg.text.mapped.file import read, write
from smg.text.mapped.make import prepare
from smg.text.tokenizer import Tokenizer
from tests.text.makers import chat_model
from tests.text.mapped.models import KEY

CHILD = """
import sys
from pathlib import Path
from smg.text.mapped.file import read
from smg.text.tokenizer import Tokenizer
tokenizer = Tokenizer(sys.argv[1], read(Path(sys.argv[2]), sys.argv[3]))
print(tokenizer.encode("hello world"), flush=True)
sys.stdin.read()
"""


def pages(path: Path) -> dict[str, int]:
    """KiB of this process's mappings of ``path``, by kind."""
    found: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(str(path))
        elif inside and line.endswith(" kB"):
            name, value, _ = line.split()
            found[name.rstrip(":")] = found.get(name.rstrip(":"), 0) + int(value)
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's list of mappings")
def test_pages_are_shared(tmp_path):
    model, path = chat_model(tmp_path / "model"), tmp_path / "file"
    made = prepare(model, KEY)
    write(path, made.head, made.sections)
    tokenizer = Tokenizer(model, read(path, KEY))
    command = [sys.executable, "-c", CHILD, str(model), str(path), KEY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == f"{tokenizer.encode('hello world')}\n"
        found = pages(path)
        other.stdin.close()
    size = path.stat().st_size // 1024
    shared = found["Shared_Clean"] + found["Shared_Dirty"]
    private = found["Private_Clean"] + found["Private_Dirty"]
    assert size > 1000
    assert shared > 10 * private
    # Neither has a copy of its own beside the mapping.
    assert found["Anonymous"] == 0
