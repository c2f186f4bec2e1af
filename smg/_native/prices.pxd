"""What each of many workers costs, and which costs least (``routing/index/cost.py`` says what goes into a price).

Columns of plain numbers, one pass for one thing: nothing to look up and hardly a branch to guess wrong, so the processor
works on several workers at once, also one that knows no more than SSE2. That has no whole numbers of 64 bits beyond
adding them, therefore prices are ``double``.

All of them are whole numbers, of 1/1,024 token: equals are equal in every process, and below 2**52 nothing is rounded.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef SMG_PRICES
    #define SMG_PRICES
    #include <stdint.h>
    #include <string.h>
    #define PRICE_WHOLE 4503599627370496.0 /* 2**52: from here on a double has no fraction */
    /* Of 0 to 2**52 - 1: its digits are those of the double that is 2**52 more. */
    static inline double price_of(int64_t number) {
        uint64_t digits = (uint64_t)number | ((uint64_t)0x433 << 52);
        double more;
        memcpy(&more, &digits, sizeof more);
        return more - PRICE_WHOLE;
    }
    /* Without its fraction; of what is not below 0. The sign of what was rounded away says whether to take 1 off. */
    static inline double price_floor(double price) {
        double near = (price + PRICE_WHOLE) - PRICE_WHOLE, rest = price - near;
        uint64_t digits;
        memcpy(&digits, &rest, sizeof rest);
        digits = (0 - (digits >> 63)) & ((uint64_t)0x3FF << 52);
        memcpy(&rest, &digits, sizeof rest);
        return near - rest;
    }
    #endif
    """
    double price_of(int64_t number) noexcept nogil
    double price_floor(double price) noexcept nogil

cdef enum:
    FINE = 1024
    # Tokens that everybody counts as having computed: a few requests in an idle fleet make no difference.
    LITTLE = 20000
    _BLOCK = 64


cdef struct Terms:
    # Of the prompt: its length, and up to how much of it a match is worth nothing. In units of the prompt.
    double length
    int cut
    # Of a unit to compute: its price, and what each token that the worker has computed lately adds to that.
    double unit
    double share
    # Of a request in flight; a whole number.
    double request


cdef inline double set_prices(
    const Terms *terms,
    const int64_t *tokens,
    const int *requests,
    const int *matched,
    const int64_t *computed,
    int64_t count,
    double *prices,
    double *lows,
) noexcept nogil:
    """Write the price of each, and the lowest of each 64 of them; returns the lowest of all, at least one."""
    cdef double length = terms.length, unit = terms.unit, share = terms.share, request = terms.request, weight
    cdef double lowest
    cdef int64_t at
    cdef int cut = terms.cut, held
    for at in range(count):
        held = matched[at] & -<int>(matched[at] > cut)
        weight = unit + share * (LITTLE + price_of(computed[at]))
        prices[at] = FINE * price_of(tokens[at]) + request * requests[at] + price_floor((length - held) * weight)
    lowest = prices[0]
    for at in range((count + _BLOCK - 1) // _BLOCK):
        lows[at] = _lowest(prices + at * _BLOCK, min(count - at * _BLOCK, <int64_t>_BLOCK))
        lowest = min(lowest, lows[at])
    return lowest


cdef inline double _lowest(const double *prices, int64_t count) noexcept nogil:
    """The lowest of at least one; by four at once, as each comparison waits for the last one."""
    cdef double a = prices[0], b = a, c = a, d = a
    cdef int64_t at = 0
    while at + 4 <= count:
        a = min(a, prices[at])
        b = min(b, prices[at + 1])
        c = min(c, prices[at + 2])
        d = min(d, prices[at + 3])
        at += 4
    while at < count:
        a = min(a, prices[at])
        at += 1
    return min(min(a, b), min(c, d))


cdef inline int64_t first_of(
    const double *prices, const double *lows, double price, int64_t count, int64_t start
) noexcept nogil:
    """The first from ``start`` on, and round, that costs ``price``, the lowest there is."""
    cdef int64_t at = start
    while prices[at] != price:
        at += 1
        while at % _BLOCK == 0 and at < count and lows[at // _BLOCK] != price:
            at += _BLOCK
        if at >= count:
            at = 0
            while lows[at // _BLOCK] != price:
                at += _BLOCK
    return at


cdef inline int64_t lowest_price(
    const double *prices, const char *without, int64_t count, int64_t start
) noexcept nogil:
    """The first from ``start`` on, and round, of those with the lowest price that ``without`` does not mark; else -1."""
    cdef int64_t at, best = -1, part, end
    for part in range(2):
        end = start if part else count
        for at in range(0 if part else start, end):
            if not without[at] and (best < 0 or prices[at] < prices[best]):
                best = at
    return best
