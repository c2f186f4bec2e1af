"""The JSON files that lie beside a tokenizer."""

import json
from pathlib import Path
from typing import Any


class TokenizerError(Exception):
    """Tokenizer files are missing, broken or of a kind that is not supported. The message is for the operator."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} when the file is missing.

    Raises:
        TokenizerError: unreadable, not JSON or not an object.
    """
    try:
        # The standard library's reader takes the Infinity and NaN that model configurations contain.
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} does not hold a JSON object")
    return value
