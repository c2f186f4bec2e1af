"""XXH3 with 64 bits and a seed, for input of any length, without the GIL.

Block hashes of KV events are defined by it (spec routing 2.3), hence exactly this function: other gateways and the
published test vectors agree on it. It is quick and well mixed, but no secret: never rely on it against an adversary.
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #ifndef SMG_XXH3
    #define SMG_XXH3
    #include <stdint.h>
    #include <string.h>

    #define X32_1 0x9E3779B1U
    #define X32_2 0x85EBCA77U
    #define X32_3 0xC2B2AE3DU
    #define X64_1 0x9E3779B185EBCA87ULL
    #define X64_2 0xC2B2AE3D27D4EB4FULL
    #define X64_3 0x165667B19E3779F9ULL
    #define X64_4 0x85EBCA77C2B2AE63ULL
    #define X64_5 0x27D4EB2F165667C5ULL
    #define X_MIX_1 0x165667919E3779F9ULL
    #define X_MIX_2 0x9FB21C651E98DF25ULL
    enum { X_SECRET = 192, X_STRIPE = 64, X_BLOCK = 1024 };

    static const unsigned char x_secret[X_SECRET] = {
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
        0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
        0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
        0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
        0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
        0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
        0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    };

    static inline uint64_t x_read64(const unsigned char *p) {
        uint64_t v;
        memcpy(&v, p, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap64(v);
    #endif
        return v;
    }
    static inline uint32_t x_read32(const unsigned char *p) {
        uint32_t v;
        memcpy(&v, p, 4);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap32(v);
    #endif
        return v;
    }
    static inline uint64_t x_rotate(uint64_t v, int by) { return (v << by) | (v >> (64 - by)); }
    static inline uint64_t x_fold(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    static inline uint64_t x_avalanche(uint64_t h) {
        h ^= h >> 37;
        h *= X_MIX_1;
        return h ^ (h >> 32);
    }
    static inline uint64_t x_avalanche64(uint64_t h) {
        h = (h ^ (h >> 33)) * X64_2;
        h = (h ^ (h >> 29)) * X64_3;
        return h ^ (h >> 32);
    }
    static inline uint64_t x_mix16(const unsigned char *p, const unsigned char *s, uint64_t seed) {
        return x_fold(x_read64(p) ^ (x_read64(s) + seed), x_read64(p + 8) ^ (x_read64(s + 8) - seed));
    }
    static inline uint64_t x_upto16(const unsigned char *p, uint64_t n, uint64_t seed) {
        const unsigned char *s = x_secret;
        if (n > 8) {
            uint64_t low = x_read64(p) ^ ((x_read64(s + 24) ^ x_read64(s + 32)) + seed);
            uint64_t high = x_read64(p + n - 8) ^ ((x_read64(s + 40) ^ x_read64(s + 48)) - seed);
            return x_avalanche(n + __builtin_bswap64(low) + high + x_fold(low, high));
        }
        if (n >= 4) {
            seed ^= (uint64_t)__builtin_bswap32((uint32_t)seed) << 32;
            uint64_t both = x_read32(p + n - 4) + ((uint64_t)x_read32(p) << 32);
            uint64_t h = both ^ ((x_read64(s + 8) ^ x_read64(s + 16)) - seed);
            h = (h ^ x_rotate(h, 49) ^ x_rotate(h, 24)) * X_MIX_2;
            h = (h ^ ((h >> 35) + n)) * X_MIX_2;
            return h ^ (h >> 28);
        }
        if (n) {
            uint32_t all = ((uint32_t)p[0] << 16) | ((uint32_t)p[n >> 1] << 24) | p[n - 1] | ((uint32_t)n << 8);
            return x_avalanche64(all ^ ((x_read32(s) ^ x_read32(s + 4)) + seed));
        }
        return x_avalanche64(seed ^ x_read64(s + 56) ^ x_read64(s + 64));
    }
    static inline uint64_t x_upto128(const unsigned char *p, uint64_t n, uint64_t seed) {
        uint64_t sum = n * X64_1, at = (n - 1) / 32;
        for (;; at--) {
            sum += x_mix16(p + 16 * at, x_secret + 32 * at, seed);
            sum += x_mix16(p + n - 16 * (at + 1), x_secret + 32 * at + 16, seed);
            if (at == 0) return x_avalanche(sum);
        }
    }
    static inline uint64_t x_upto240(const unsigned char *p, uint64_t n, uint64_t seed) {
        uint64_t sum = n * X64_1, end = x_mix16(p + n - 16, x_secret + 119, seed), at;
        for (at = 0; at < 8; at++) sum += x_mix16(p + 16 * at, x_secret + 16 * at, seed);
        for (; at < n / 16; at++) end += x_mix16(p + 16 * at, x_secret + 16 * (at - 8) + 3, seed);
        return x_avalanche(x_avalanche(sum) + end);
    }
    static inline void x_stripe(uint64_t *sums, const unsigned char *p, const unsigned char *s) {
        for (int lane = 0; lane < 8; lane++) {
            uint64_t data = x_read64(p + 8 * lane), key = data ^ x_read64(s + 8 * lane);
            sums[lane ^ 1] += data;
            sums[lane] += (key & 0xFFFFFFFFU) * (key >> 32);
        }
    }
    static inline uint64_t x_long(const unsigned char *p, uint64_t n, uint64_t seed) {
        unsigned char derived[X_SECRET];
        const unsigned char *s = seed ? derived : x_secret;
        uint64_t sums[8] = {X32_3, X64_1, X64_2, X64_3, X64_4, X32_2, X64_5, X32_1};
        for (int at = 0; seed && at < X_SECRET; at += 16) {
            uint64_t low = x_read64(x_secret + at) + seed, high = x_read64(x_secret + at + 8) - seed;
            memcpy(derived + at, &low, 8);
            memcpy(derived + at + 8, &high, 8);
        }
        const unsigned char *last = p + n - X_STRIPE;
        for (; n > X_BLOCK; n -= X_BLOCK, p += X_BLOCK) {
            for (int at = 0; at < X_BLOCK / X_STRIPE; at++) x_stripe(sums, p + X_STRIPE * at, s + 8 * at);
            for (int lane = 0; lane < 8; lane++) {
                uint64_t v = sums[lane];
                sums[lane] = (v ^ (v >> 47) ^ x_read64(s + X_SECRET - X_STRIPE + 8 * lane)) * X32_1;
            }
        }
        for (uint64_t at = 0; at < (n - 1) / X_STRIPE; at++) x_stripe(sums, p + X_STRIPE * at, s + 8 * at);
        x_stripe(sums, last, s + X_SECRET - X_STRIPE - 7);
        uint64_t h = 0;
        for (int at = 0; at < 4; at++) {
            const unsigned char *key = s + 11 + 16 * at;
            h += x_fold(sums[2 * at] ^ x_read64(key), sums[2 * at + 1] ^ x_read64(key + 8));
        }
        return h;
    }
    static inline uint64_t xxh3_64(const void *data, uint64_t n, uint64_t seed) {
        const unsigned char *p = (const unsigned char *)data;
        if (n <= 16) return x_upto16(p, n, seed);
        if (n <= 128) return x_upto128(p, n, seed);
        if (n <= 240) return x_upto240(p, n, seed);
        return x_avalanche(n * X64_1 + x_long(p, n, seed));
    }
    #endif
    """
    uint64_t xxh3_64(const void *data, uint64_t size, uint64_t seed) noexcept nogil
