"""What each of many workers costs, and which costs least (``routing/index/cost.py`` says what goes into a price).

Columns of plain numbers, one pass for one thing: nothing to look up and hardly a branch to guess wrong, so the processor
works on several workers at once.

Prices are whole numbers of 1/1,024 token, so that equals are equal in every process.
"""

from libc.stdint cimport int64_t

cdef enum:
    FINE = 1024
    # Tokens that everybody counts as having computed: a few requests in an idle fleet make no difference.
    LITTLE = 20000


cdef struct Terms:
    # Of the prompt: its length, and up to how much of it a match is worth nothing. In units of the prompt.
    double length
    int64_t cut
    # Of a unit to compute: its price, and what each token that the worker has computed lately adds to that.
    double unit
    double share
    # Of a request in flight.
    int64_t request


cdef inline void set_prices(
    const Terms *terms,
    const int64_t *tokens,
    const int *requests,
    const int *matched,
    const int64_t *computed,
    int64_t count,
    int64_t *prices,
) noexcept nogil:
    cdef double length = terms.length, unit = terms.unit, share = terms.share
    cdef int64_t cut = terms.cut, request = terms.request, price, at
    cdef int held
    for at in range(count):
        held = matched[at] & -<int>(matched[at] > cut)
        price = FINE * tokens[at] + request * requests[at]
        prices[at] = price + <int64_t>((length - held) * (unit + share * (LITTLE + computed[at])))


cdef inline int64_t lowest_price(
    const int64_t *prices, const char *without, int64_t count, int64_t start
) noexcept nogil:
    """The first from ``start`` on, and round, of those with the lowest price; -1 when all are left out.

    ``without`` marks who is left out; nobody is when it is NULL.
    """
    cdef int64_t at, best = -1, lowest = 0, part, end
    for part in range(2):
        end = start if part else count
        for at in range(0 if part else start, end):
            if (best < 0 or prices[at] < lowest) and not (without != NULL and without[at]):
                best = at
                lowest = prices[at]
    return best


cdef inline void extremes(const int *values, int64_t count, int *least, int *most) noexcept nogil:
    """The smallest and the largest of at least one value."""
    cdef int low = values[0], high = values[0]
    cdef int64_t at
    for at in range(1, count):
        low = min(low, values[at])
        high = max(high, values[at])
    least[0] = low
    most[0] = high
