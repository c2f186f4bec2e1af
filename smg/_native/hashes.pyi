"""The hashes routing has in common with other gateways (spec routing 1.5, 1.6, 2.3)."""

def xxh3_64(data: bytes, seed: int = 0) -> int:
    """XXH3 with 64 bits. Raises OverflowError for a seed outside 0…2**64 - 1."""

def blake3_64(data: bytes) -> int:
    """The first 8 bytes of BLAKE3, little-endian."""
