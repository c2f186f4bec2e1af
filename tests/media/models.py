"""Small models that take images: the mock engine's tokenizer with a family's tokens, its files and a chat template."""

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image
from tokenizers import AddedToken, Tokenizer

from smg.engine_server.bundle import pack
from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.script import Script

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vision"))
from vision_cases import picture

__all__ = ["GOLDEN", "QWEN", "Model", "data_url", "picture", "png"]

GOLDEN = json.loads((Path(__file__).resolve().parents[1] / "vision" / "golden.json").read_text("utf-8"))


class Model(msgspec.Struct, frozen=True):
    """``tokens`` are added behind the mock's vocabulary, in order; the template writes ``written`` for an image.

    ``strings``: the template takes strings only.
    """

    type: str
    tokens: tuple[str, ...]
    written: str
    config: dict[str, Any] = {}
    preprocessor: dict[str, Any] = {}
    strings: bool = False

    def id(self, token: str) -> int:
        return mock.VOCAB_SIZE + self.tokens.index(token)

    @property
    def vocab_size(self) -> int:
        return mock.VOCAB_SIZE + len(self.tokens)

    def files(self) -> dict[str, bytes]:
        """The model's files by name."""
        built = Tokenizer.from_str(mock.tokenizer().to_str())
        built.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in self.tokens])
        files = {
            "tokenizer_config.json": {"eos_token": "<|im_end|>", "chat_template": self.template()},
            "config.json": {"model_type": self.type, "vision_config": {}, **self.config},
            "preprocessor_config.json": self.preprocessor,
        }
        encoded = {name: json.dumps(content).encode() for name, content in files.items()}
        return {"tokenizer.json": built.to_str().encode(), **encoded}

    def write(self, directory: Path) -> Path:
        """Write the files into ``directory`` and return it."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            (directory / name).write_bytes(content)
        return directory

    def script(self, answer: str) -> Script:
        """An engine of this model, which hands out the files itself."""
        return Script.text(answer, bundle=pack(self.files()), vocab_size=self.vocab_size)

    def template(self) -> str:
        content = "{{ message['content'] }}" if self.strings else self._parts()
        return (
            "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
            + content
            + "{{ '<|im_end|>\n' }}{% endfor -%}{{ '<|im_start|>assistant\n' }}"
        )

    def _parts(self) -> str:
        return (
            "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
            "{% for part in message['content'] %}{% if part['type'] != 'text' %}{{ '" + self.written + "' }}"
            "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
        )


QWEN = Model(
    "qwen2_5_vl",
    ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
    "<|vision_start|><|image_pad|><|vision_end|>",
    {"image_token_id": mock.VOCAB_SIZE + 2},
)


def png(height: int, width: int) -> bytes:
    """The picture of ``vision_cases`` as a PNG, which loses nothing."""
    out = io.BytesIO()
    Image.fromarray(np.asarray(picture(height, width))).save(out, "PNG")
    return out.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
