"""Keys of a text's blocks: a chain of 128-bit products, four of them at a time where blocks are long.

No engine and no other gateway hashes text for us, so the hash is chosen for speed: a 16-byte block is one product, 64
bytes are four that do not wait for each other, and one more product takes in what came before. The constants are the
first 64 bits of the fractional parts of the square roots of 2, 3, 5, 7, 11 and 13, made odd, so that no part of a block
means the same at two places. Whoever tries can make two texts collide; all that comes of it is that a request goes
where its prompt is not.
"""

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define TH_0 0x6A09E667F3BCC909ULL
    #define TH_1 0xBB67AE8584CAA73BULL
    #define TH_2 0x3C6EF372FE94F82BULL
    #define TH_3 0xA54FF53A5F1D36F1ULL
    #define TH_4 0x510E527FADE682D1ULL
    #define TH_5 0x9B05688C2B3E6C1FULL
    static inline uint64_t th_word(const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }
    static inline uint64_t th_fold(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    /* A block of 16 bytes, or of a multiple of 64, after the blocks whose key is ``before`` (0: it is the first). */
    static inline uint64_t text_key(const unsigned char *block, int64_t size, uint64_t before) {
        uint64_t content;
        if (size == 16) {
            content = th_fold(th_word(block) ^ TH_0, th_word(block + 8) ^ TH_1);
        } else {
            uint64_t a = TH_0, b = TH_1, c = TH_2, d = TH_3;
            for (int64_t at = 0; at < size; at += 64) {
                a = th_fold(th_word(block + at) ^ a, th_word(block + at + 8) ^ TH_4);
                b = th_fold(th_word(block + at + 16) ^ b, th_word(block + at + 24) ^ TH_4);
                c = th_fold(th_word(block + at + 32) ^ c, th_word(block + at + 40) ^ TH_4);
                d = th_fold(th_word(block + at + 48) ^ d, th_word(block + at + 56) ^ TH_4);
            }
            content = th_fold(a ^ TH_4, b ^ TH_5) ^ th_fold(c ^ TH_4, d ^ TH_0);
        }
        return th_fold(content ^ TH_2, before ^ TH_5) ^ content;
    }
    """
    uint64_t text_key(const unsigned char *block, int64_t size, uint64_t before) noexcept nogil
