"""The tokenizer inside a GGUF file, as a directory like those that engines send (spec text-pipeline 1.1)."""

import hashlib
import io
from pathlib import Path
from typing import Any

from smg.fleet.bundle import Bundle, BundleError, Limits, install

# Metadata of the ids that end a generation, the model's own end of sequence first.
_END_IDS = ("eos", "eot", "eom")


def unpack_gguf(path: Path, cache: Path) -> Bundle:
    """Write the tokenizer, template and end ids of the GGUF file at ``path`` to ``cache/<digest>``. Blocking.

    Raises:
        BundleError: not a GGUF file, or a tokenizer that cannot be rebuilt faithfully.
        OSError: a file cannot be read or written.
    """
    # Only who has such a file needs what the embedded engine needs.
    from smg.engine_server.llama import gguf_metadata, tokenizer_bundle

    try:
        metadata = gguf_metadata.read(path)
        archive = tokenizer_bundle.build(metadata, _end_ids(metadata))
    except (ValueError, tokenizer_bundle.UnknownTokenizer) as error:
        raise BundleError(str(error)) from None
    except (KeyError, IndexError, TypeError) as error:
        raise BundleError(f"{path} has no complete tokenizer in it ({error})") from None
    digest = hashlib.sha256(archive).hexdigest()
    cache.mkdir(parents=True, exist_ok=True)
    return Bundle(install(io.BytesIO(archive), cache, digest, Limits()), digest)


def _end_ids(metadata: dict[str, Any]) -> list[int]:
    found = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _END_IDS)
    return list(dict.fromkeys(number for number in found if isinstance(number, int)))
