"""The region's unit: an aligned word of 64 bits, signed, touched through C11-style atomics only.

What is larger is copied word by word; sums of a column are taken over the rows of all processes.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

ctypedef int64_t word

cdef extern from *:
    """
    #ifndef SMG_WORDS
    #define SMG_WORDS
    #include <stdint.h>
    static inline int64_t w_load(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline int64_t w_load_acquire(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline int64_t w_load_total(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
    static inline void w_store(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
    static inline void w_store_release(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int64_t w_add(int64_t *p, int64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
    static inline int64_t w_add_total(int64_t *p, int64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
    static inline int w_claim(int64_t *p) {
        int64_t free_tag = 0;
        return __atomic_compare_exchange_n(p, &free_tag, (int64_t)1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline int w_swap(int64_t *p, int64_t before, int64_t after) {
        return __atomic_compare_exchange_n(p, &before, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    static inline void w_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static inline void w_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    _Static_assert(__atomic_always_lock_free(sizeof(int64_t), 0), "64-bit atomics must not need a lock");
    #endif
    """
    word w_load(const word *p) noexcept nogil
    word w_load_acquire(const word *p) noexcept nogil
    word w_load_total(const word *p) noexcept nogil
    void w_store(word *p, word v) noexcept nogil
    void w_store_release(word *p, word v) noexcept nogil
    word w_add(word *p, word v) noexcept nogil
    word w_add_total(word *p, word v) noexcept nogil
    bint w_claim(word *p) noexcept nogil
    bint w_swap(word *p, word before, word after) noexcept nogil
    void w_fence_acquire() noexcept nogil
    void w_fence_release() noexcept nogil


cdef inline word padded(word words) noexcept nogil:
    return (words + 7) & ~<word>7


cdef inline word column_sum(const word *cell, word rows, word stride) noexcept nogil:
    cdef word total = 0, row
    for row in range(rows):
        total += w_load(cell + row * stride)
    return total


cdef inline void copy_in(word *target, const char *source, word size) noexcept nogil:
    """Store bytes word by word: readers may look at the same time, and a plain memcpy would be a data race."""
    cdef word whole = size >> 3, i, value
    for i in range(whole):
        memcpy(&value, source + (i << 3), 8)
        w_store(target + i, value)
    if size & 7:
        value = 0
        memcpy(&value, source + (whole << 3), size & 7)
        w_store(target + whole, value)


cdef inline void copy_out(char *target, const word *source, word size) noexcept nogil:
    cdef word whole = size >> 3, i, value
    for i in range(whole):
        value = w_load(source + i)
        memcpy(target + (i << 3), &value, 8)
    if size & 7:
        value = w_load(source + whole)
        memcpy(target + (whole << 3), &value, size & 7)
