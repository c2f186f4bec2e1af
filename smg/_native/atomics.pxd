"""Shared memory without locks: atomic 64-bit cells, and what else C offers to processes that share them.

``c_me`` is this process's pid. Each module has its own: call ``c_know_me`` once when a module that uses it is loaded.
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #ifndef SMG_ATOMICS
    #define SMG_ATOMICS
    #include <errno.h>
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <unistd.h>
    typedef uint64_t cell;
    static inline cell c_load(const cell *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline cell c_load_acquire(const cell *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void c_store(cell *p, cell v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
    static inline void c_store_release(cell *p, cell v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline cell c_add(cell *p, cell v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
    static inline int c_swap(cell *p, cell from, cell to) {
        return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline void c_raise(cell *p, cell to) {
        cell now = c_load(p);
        while (now < to && !__atomic_compare_exchange_n(p, &now, to, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
    }
    static inline void c_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static inline void c_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    /* A page fault takes as long as a whole insert: have the pages there before. Where the kernel can't, they fault. */
    static inline void c_populate(void *from, size_t size) {
    #ifdef MADV_POPULATE_WRITE
        (void)madvise(from, size, MADV_POPULATE_WRITE);
    #endif
    }
    static inline void c_fetch(const void *p) { __builtin_prefetch(p, 1, 3); }
    static inline void c_pause(void) {
    #if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
    #endif
    }
    static inline int c_alive(cell pid) { return kill((pid_t)pid, 0) == 0 || errno != ESRCH; }

    /* getpid is a system call; a lock must name the process that takes it, also right after a fork. */
    static cell c_me;
    static void c_note_me(void) { c_me = (cell)getpid(); }
    static inline void c_know_me(void) { c_note_me(); pthread_atfork(0, 0, c_note_me); }
    _Static_assert(__atomic_always_lock_free(sizeof(cell), 0), "64-bit atomics must not need a lock");
    #endif
    """
    ctypedef uint64_t cell
    cell c_me
    cell c_load(const cell *p) noexcept nogil
    cell c_load_acquire(const cell *p) noexcept nogil
    void c_store(cell *p, cell v) noexcept nogil
    void c_store_release(cell *p, cell v) noexcept nogil
    cell c_add(cell *p, cell v) noexcept nogil
    bint c_swap(cell *p, cell was, cell to) noexcept nogil
    void c_raise(cell *p, cell to) noexcept nogil
    void c_fence_acquire() noexcept nogil
    void c_fence_release() noexcept nogil
    void c_populate(void *start, size_t size) noexcept nogil
    void c_fetch(const void *p) noexcept nogil
    void c_pause() noexcept nogil
    bint c_alive(cell pid) noexcept nogil
    void c_know_me() noexcept nogil
    int sched_yield() noexcept nogil
