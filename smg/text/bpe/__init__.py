"""Byte-level BPE by our own native encoder, where its ids are those of the tokenizers library (DESIGN 5, 6).

``description`` reads what a tokenizer says of itself and refuses what the encoder does not do exactly; ``proof`` tries
the encoder against the library before it is used; ``encoder`` hands over texts it is not sure of.
"""

from smg.text.bpe.description import NotByteBpe
from smg.text.bpe.encoder import FastEncoder
from smg.text.bpe.proof import prove

__all__ = ["FastEncoder", "NotByteBpe", "prove"]
