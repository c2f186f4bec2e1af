"""VERSION: what a prepared file depends on beside the tokenizer's own files."""

import hashlib
import platform
import sys
from pathlib import Path

import tokenizers

from smg._native import bpe, bpe_merge, bpe_tables, stop_scan, vocab_table, word_split, word_table

_NATIVE = (bpe, bpe_merge, bpe_tables, stop_scan, vocab_table, word_split, word_table)


def _fingerprint() -> str:
    """Digest of the code that makes and reads the files, in hex: nobody has to think of raising a number."""
    whole = hashlib.sha256(f"{tokenizers.__version__} {platform.machine()} {sys.byteorder}".encode())
    text = Path(__file__).resolve().parent.parent
    for path in [*sorted(text.rglob("*.py")), *(Path(str(module.__file__)) for module in _NATIVE)]:
        whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


# Worked out when it is imported, before the fork: what this process runs, whatever is installed later.
VERSION = _fingerprint()
