"""Which files make a tokenizer, and which of them is loaded (spec text-pipeline 1.1; readers: ``smg.text.formats``)."""

import hashlib
import json
from pathlib import Path

# Names of files that are a tokenizer by themselves, most wanted first. Mistral numbers its SentencePiece models.
_FILES = ("tokenizer.json", "tekken.json", "tiktoken.model", "*.tiktoken", "tokenizer.model", "*.model", "*.model.v*")

# Classes whose vocab.json and merges.txt are understood.
QWEN2 = frozenset({"Qwen2Tokenizer", "Qwen2TokenizerFast"})

# What a tokenizer may be made of, and what shapes its use (names as in the bundle; spec engine-contract 2.10).
_RELEVANT = (
    "tokenizer.json",
    "tekken.json",
    "vocab.json",
    "*.model",
    "*.model.v*",
    "*.tiktoken",
    "*config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template*",
    "*.jinja",
)


class UnknownFormat(Exception):
    """No tokenizer files, or none that can be loaded; the text is for operators."""


def loadable(directory: Path) -> Path:
    """Return the file of ``directory`` that holds its tokenizer, the best of several.

    vocab.json (with merges.txt beside it) follows tokenizer.json when its class is known, and comes last otherwise: the
    reader then names the class.

    Raises:
        UnknownFormat: there is none.
    """
    if (directory / "tokenizer.json").is_file():
        return directory / "tokenizer.json"
    pair = (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file()
    if pair and _class(directory) in QWEN2:
        return directory / "vocab.json"
    for pattern in _FILES:
        for found in sorted(directory.glob(pattern)):
            if found.is_file():
                return found
    if pair:
        return directory / "vocab.json"
    raise UnknownFormat(f"no tokenizer in {directory} (tokenizer.json, tekken.json, tiktoken or SentencePiece files)")


def loadable_file(path: Path) -> Path:
    """Check the file ``path`` that somebody names instead of its directory, and return it.

    Raises:
        UnknownFormat: it is no tokenizer, or its directory has another that would be loaded instead.
    """
    if path.name != "vocab.json" and not any(path.match(pattern) for pattern in _FILES):
        raise UnknownFormat(f"{path}: it is neither a tokenizer file nor a GGUF file")
    chosen = loadable(path.parent)
    if chosen != path:
        raise UnknownFormat(f"{path}: {chosen.name} beside it would be loaded; give {path.name} its own directory")
    return path


def digest(directory: Path) -> str:
    """SHA-256 over names and contents of the directory's tokenizer files, in hex. Blocking."""
    whole = hashlib.sha256()
    for path in _relevant(directory):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256")
        whole.update(path.name.encode() + b"\0" + content.digest())
    return whole.hexdigest()


def weight(directory: Path) -> int:
    """Bytes of the directory's tokenizer files. Blocking."""
    return sum(path.stat().st_size for path in _relevant(directory))


def _relevant(directory: Path) -> list[Path]:
    names = sorted({path.name for pattern in _RELEVANT for path in directory.glob(pattern) if path.is_file()})
    return [directory / name for name in names]


def _class(directory: Path) -> str:
    try:
        config = json.loads((directory / "tokenizer_config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    name = config.get("tokenizer_class") if isinstance(config, dict) else None
    return name if isinstance(name, str) else ""
