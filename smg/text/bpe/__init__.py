"""Byte-level BPE by our own native encoder, where its ids are those of the tokenizers library (DESIGN 5, 6).

``description`` reads what a tokenizer says of itself and refuses what the encoder does not do exactly; ``encoder``
tries it against the library before it is used and hands over texts it is not sure of.
"""

from smg.text.bpe.description import NotByteBpe
from smg.text.bpe.encoder import FastEncoder

__all__ = ["FastEncoder", "NotByteBpe"]
