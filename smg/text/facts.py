"""Facts: what is found out about a tokenizer once, when the tokenizers library has loaded it."""

import re
from pathlib import Path
from typing import Any

import msgspec

from smg.text.config_files import read_json
from smg.text.cuts import frame
from smg.text.library import Library
from smg.text.shield import JOINER
from smg.text.specials import SpecialTokens, find_eos

# Added tokens that structure a conversation, although some models do not declare them special.
_CONTROL = re.compile(r"<[|｜].+[|｜]>")


class Facts(msgspec.Struct, frozen=True):
    """One tokenizer's, without the shield's joiner, whose text is another one in each gateway.

    ``size`` is the highest id plus one. ``config`` and ``model_config`` are tokenizer_config.json, over what the format
    implies, and config.json. ``literals`` are the added tokens that are looked for in a text before it is normalised,
    and their ids; ``added`` the texts of all added tokens, which are never merged with what stands beside them;
    ``controls`` the texts that users must not be able to type. ``joiner`` is the id of the joiner, None
    where there cannot be one. ``frame`` is what ``add_special_tokens`` puts around every text, None where that depends
    on the text.
    """

    size: int
    config: dict[str, Any]
    model_config: dict[str, Any]
    specials: SpecialTokens
    eos_ids: tuple[int, ...]
    literals: dict[str, int]
    added: list[str]
    controls: list[str]
    joiner: int | None
    frame: tuple[list[int], list[int]] | None


def find_out(library: Library, directory: Path) -> Facts:
    """Ask ``library``, and the files beside it.

    Raises:
        TokenizerError: a file that cannot be read.
    """
    return Facts(
        size=library.size,
        config=library.config,
        model_config=read_json(directory / "config.json"),
        specials=library.specials,
        eos_ids=find_eos(directory, library.specials.eos, library.token_id),
        literals={text: token for text, token in library.literals().items() if text != JOINER},
        added=[text for text, _ in library.added.values() if text != JOINER],
        controls=[text for text, special in library.added.values() if special or _CONTROL.fullmatch(text)],
        joiner=library.joiner,
        frame=frame(library),
    )
