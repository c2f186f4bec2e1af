"""The word of a circuit breaker that routing looks at: its layout, and whether it lets a request through.

    bits 0-1    state: 0 closed, 1 open, 2 half open
    bits 2-8    permits left (half open)
    bits 9-15   successes so far (half open)
    bits 16-23  epoch: counts the times permits were given out, so that a permit of an earlier time is not taken back
    bits 24-63  milliseconds of the monotonic clock: open until; half open: when permits that were lost are given anew
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef SMG_GATE
    #define SMG_GATE
    #include <stdint.h>
    #include <time.h>
    static inline int64_t gate_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    static inline int gate_state(int64_t gate) { return (int)(gate & 3); }
    static inline int gate_permits(int64_t gate) { return (int)((gate >> 2) & 127); }
    static inline int gate_successes(int64_t gate) { return (int)((gate >> 9) & 127); }
    static inline int gate_epoch(int64_t gate) { return (int)((gate >> 16) & 255); }
    static inline int64_t gate_time(int64_t gate) { return (int64_t)((uint64_t)gate >> 24); }
    static inline int64_t gate_make(int state, int permits, int successes, int epoch, int64_t time) {
        return (int64_t)((uint64_t)state | (uint64_t)permits << 2 | (uint64_t)successes << 9
                         | (uint64_t)(epoch & 255) << 16 | (uint64_t)time << 24);
    }
    static inline int gate_admits(int64_t gate, int64_t now) {
        return gate_state(gate) == 0 || gate_time(gate) <= now || (gate_state(gate) == 2 && gate_permits(gate) > 0);
    }
    #endif
    """
    int64_t gate_now() noexcept nogil
    int gate_state(int64_t gate) noexcept nogil
    int gate_permits(int64_t gate) noexcept nogil
    int gate_successes(int64_t gate) noexcept nogil
    int gate_epoch(int64_t gate) noexcept nogil
    int64_t gate_time(int64_t gate) noexcept nogil
    int64_t gate_make(int state, int permits, int successes, int epoch, int64_t time) noexcept nogil
    bint gate_admits(int64_t gate, int64_t now) noexcept nogil
