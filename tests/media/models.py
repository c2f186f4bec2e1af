"""Small models that take images: the mock engine's tokenizer with a family's tokens, its files and a chat template."""

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from tokenizers import AddedToken, Tokenizer

from smg.engine_server.mock import tokenizer as mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vision"))
from vision_cases import picture

__all__ = ["GOLDEN", "QWEN", "Model", "data_url", "picture", "png"]

GOLDEN = json.loads((Path(__file__).resolve().parents[1] / "vision" / "golden.json").read_text("utf-8"))


class Model(NamedTuple):
    """``tokens`` are added behind the mock's vocabulary, in order; ``written`` is what the template writes for an image.

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

    def write(self, directory: Path) -> Path:
        """Write the model's files into ``directory`` and return it."""
        directory.mkdir(parents=True, exist_ok=True)
        built = Tokenizer.from_str(mock.tokenizer().to_str())
        built.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in self.tokens])
        (directory / "tokenizer.json").write_text(built.to_str(), "utf-8")
        files = {
            "tokenizer_config.json": {"eos_token": "<|im_end|>", "chat_template": self.template()},
            "config.json": {"model_type": self.type, "vision_config": {}, **self.config},
            "preprocessor_config.json": self.preprocessor,
        }
        for name, content in files.items():
            (directory / name).write_text(json.dumps(content), "utf-8")
        return directory

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
            "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '" + self.written + "' }}"
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
