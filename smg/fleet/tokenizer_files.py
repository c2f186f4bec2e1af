"""Which files make a tokenizer, and which of them this gateway can load (spec text-pipeline 1.1)."""

from pathlib import Path

# What is there, and what it is called; of formats that cannot be loaded.
_UNSUPPORTED = (
    ("tekken.json", "Mistral's tekken"),
    ("tiktoken.model", "tiktoken"),
    ("*.tiktoken", "tiktoken"),
    ("*.model", "SentencePiece"),
)


class UnknownFormat(Exception):
    """No tokenizer files, or none that can be loaded; the text is for operators."""


def loadable(directory: Path) -> Path:
    """Return the file of ``directory`` that holds its tokenizer: tokenizer.json, or vocab.json with merges.txt beside.

    Raises:
        UnknownFormat: neither is there; names what is there instead.
    """
    if (directory / "tokenizer.json").is_file():
        return directory / "tokenizer.json"
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        return directory / "vocab.json"
    for pattern, name in _UNSUPPORTED:
        for found in sorted(directory.glob(pattern)):
            raise UnknownFormat(
                f"no tokenizer.json in {directory}, and {name} files such as {found.name} can't be loaded; "
                "convert the tokenizer to a tokenizer.json"
            )
    raise UnknownFormat(f"no tokenizer.json in {directory}")


def loadable_file(path: Path) -> Path:
    """Return what to load when somebody names the file ``path`` instead of its directory.

    Raises:
        UnknownFormat: it is of another kind; names it.
    """
    if path.name in ("tokenizer.json", "vocab.json"):
        return loadable(path.parent)
    kind = next((name for pattern, name in _UNSUPPORTED if path.match(pattern)), "")
    what = f"{kind} files can't be loaded" if kind else "it is neither a tokenizer.json nor a GGUF file"
    raise UnknownFormat(f"{path}: {what}")
