"""SipHash-2-4 with 128 bits, without the GIL: a keyed hash that nobody can steer who does not know the key.

Start, absorb whole words as they come, and finish a copy of the state at every place whose digest is wanted.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy


cdef struct Sip:
    uint64_t v0
    uint64_t v1
    uint64_t v2
    uint64_t v3


cdef inline uint64_t sip_rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_rounds(Sip *sip, int count) noexcept nogil:
    cdef int number
    for number in range(count):
        sip.v0 += sip.v1
        sip.v2 += sip.v3
        sip.v1 = sip_rotate(sip.v1, 13) ^ sip.v0
        sip.v3 = sip_rotate(sip.v3, 16) ^ sip.v2
        sip.v0 = sip_rotate(sip.v0, 32)
        sip.v2 += sip.v1
        sip.v0 += sip.v3
        sip.v1 = sip_rotate(sip.v1, 17) ^ sip.v2
        sip.v3 = sip_rotate(sip.v3, 21) ^ sip.v0
        sip.v2 = sip_rotate(sip.v2, 32)


cdef inline void sip_absorb(Sip *sip, uint64_t word) noexcept nogil:
    sip.v3 ^= word
    sip_rounds(sip, 2)
    sip.v0 ^= word


cdef inline uint64_t sip_word(const unsigned char *data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline Sip sip_start(const uint64_t *secret) noexcept nogil:
    return Sip(
        secret[0] ^ <uint64_t>0x736F6D6570736575,
        secret[1] ^ <uint64_t>0x646F72616E646F6D ^ <uint64_t>0xEE,
        secret[0] ^ <uint64_t>0x6C7967656E657261,
        secret[1] ^ <uint64_t>0x7465646279746573,
    )


cdef inline void sip_finish(
    Sip sip, const unsigned char *data, uint64_t size, uint64_t *low, uint64_t *high
) noexcept nogil:
    """Close a copy of the state over ``data[:size]``, of which whole words have been absorbed."""
    cdef uint64_t last = size << 56, at
    for at in range(size & 7):
        last |= <uint64_t>data[(size & ~<uint64_t>7) + at] << (8 * at)
    sip_absorb(&sip, last)
    sip.v2 ^= 0xEE
    sip_rounds(&sip, 4)
    low[0] = sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3
    sip.v1 ^= 0xDD
    sip_rounds(&sip, 4)
    high[0] = sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3
