"""The words of the in-flight matrix: what a process has sent to a worker and not finished, as one number.

    bits 0-39 tokens · bits 40-63 requests

One addition counts both, and half as much memory is read as with a word for each; a decision reads a word of every
worker and process. Either may be below 0 for a moment (and borrows from the other until it is taken apart), as a reader
may see what has been taken back without what was added elsewhere.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef SMG_INFLIGHT
    #define SMG_INFLIGHT
    #include <stdint.h>
    #include <string.h>
    /* Of one change. A worker can have 2**23 requests and 2**39 tokens in flight. */
    #define LOAD_MOST_REQUESTS ((int64_t)1 << 20)
    #define LOAD_MOST_TOKENS ((int64_t)1 << 36)
    /* What makes both halves positive, so that neither borrows. */
    #define SMG_INFLIGHT_ZERO (((uint64_t)1 << 63) + ((uint64_t)1 << 39))
    static inline int64_t load_made(int64_t requests, int64_t tokens) {
        return (int64_t)(((uint64_t)requests << 40) + (uint64_t)tokens);
    }
    static inline int64_t load_requests(int64_t load) {
        return (int64_t)(((uint64_t)load + SMG_INFLIGHT_ZERO) >> 40) - ((int64_t)1 << 23);
    }
    static inline int64_t load_tokens(int64_t load) {
        return (int64_t)(((uint64_t)load + SMG_INFLIGHT_ZERO) & (((uint64_t)1 << 40) - 1)) - ((int64_t)1 << 39);
    }
    /* As load_tokens and load_requests, 0 instead of less: without a branch, and with nothing SSE2 lacks. */
    static inline int64_t load_tokens_seen(int64_t load) {
        uint64_t above = ((uint64_t)load + SMG_INFLIGHT_ZERO) & (((uint64_t)1 << 40) - 1);
        return (int64_t)((above - ((uint64_t)1 << 39)) & -(above >> 39));
    }
    static inline int load_requests_seen(int64_t load) {
        int requests = (int)(((uint64_t)load + SMG_INFLIGHT_ZERO) >> 40) - (1 << 23);
        return requests > 0 ? requests : 0;
    }
    /* Sums of ``count`` words from ``first`` on, over all rows. Plain reads, so that several words are read at once: each
       is whole on every machine with 64-bit atomics. */
    static inline void load_sums(
        int64_t *restrict sums, const int64_t *const *rows, int64_t many, int64_t first, int64_t count
    ) {
        int64_t row = many & 1;
        if (row) memcpy(sums, rows[0] + first, (size_t)count * sizeof *sums);
        else memset(sums, 0, (size_t)count * sizeof *sums);
        for (; row < many; row += 2) {
            const int64_t *restrict one = rows[row] + first, *restrict other = rows[row + 1] + first;
            for (int64_t at = 0; at < count; at++) sums[at] += one[at] + other[at];
        }
    }
    #endif
    """
    const int64_t LOAD_MOST_REQUESTS
    const int64_t LOAD_MOST_TOKENS
    int64_t load_made(int64_t requests, int64_t tokens) noexcept nogil
    int64_t load_requests(int64_t load) noexcept nogil
    int64_t load_tokens(int64_t load) noexcept nogil
    int64_t load_tokens_seen(int64_t load) noexcept nogil
    int load_requests_seen(int64_t load) noexcept nogil
    void load_sums(int64_t *sums, const int64_t *const *rows, int64_t many, int64_t first, int64_t count) noexcept nogil
