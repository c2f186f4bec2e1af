"""Hand-written matchers for the regular expressions that cut a text into words before byte-level BPE.

Each follows its expression's alternatives in their order, with the backtracking that the expression implies worked
out: a run of blanks gives its last one to the word behind it, a run with line ends reaches to the last of them.
Texts are valid UTF-8, and expressions see no further than ``end``: added tokens and earlier cuts bound them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef enum:
    IS_UPPER = 1 << UPPER
    IS_LOWER = 1 << LOWER
    IS_LETTER = IS_UPPER | IS_LOWER | (1 << LETTER)
    IS_MARK = 1 << MARK
    IS_NUMBER = 1 << NUMBER
    IS_SPACE = 1 << SPACE
    IS_SIGN = (1 << PUNCTUATION) | (1 << SYMBOL)
    # The two halves of a word in O200K: capitals first, then small ones; what has no case is in both.
    IS_HEAD = IS_UPPER | (1 << LETTER) | IS_MARK
    IS_TAIL = IS_LOWER | (1 << LETTER) | IS_MARK


cdef inline uint32_t _char(const uint8_t *data, int64_t at, int *size) noexcept nogil:
    """Decode the code point at ``at`` of valid UTF-8; ``size`` becomes its bytes."""
    cdef uint32_t first = data[at]
    if first < 0x80:
        size[0] = 1
        return first
    if first < 0xE0:
        size[0] = 2
        return (first & 0x1F) << 6 | (data[at + 1] & 0x3F)
    if first < 0xF0:
        size[0] = 3
        return (first & 0x0F) << 12 | <uint32_t>(data[at + 1] & 0x3F) << 6 | (data[at + 2] & 0x3F)
    size[0] = 4
    return (
        (first & 0x07) << 18
        | <uint32_t>(data[at + 1] & 0x3F) << 12
        | <uint32_t>(data[at + 2] & 0x3F) << 6
        | (data[at + 3] & 0x3F)
    )


cdef inline int _bit(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int *size) noexcept nogil:
    """The class at ``at`` as a bit; 0 at the end."""
    if at >= end:
        size[0] = 0
        return 0
    return 1 << (s.classes[_char(data, at, size)] & 15)


cdef inline int _cased_bit(
    const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int *size, bint han
) noexcept nogil:
    """As ``_bit``, but 0 for Han characters when they are no part of a word (``han``)."""
    cdef int value
    if at >= end:
        size[0] = 0
        return 0
    value = s.classes[_char(data, at, size)]
    return 0 if han and value & HAN else 1 << (value & 15)


cdef inline int64_t _han_run(const Splitter *s, const uint8_t *data, int64_t at, int64_t end) noexcept nogil:
    """Return where the run of Han characters from ``at`` on ends."""
    cdef int size
    while at < end and s.classes[_char(data, at, &size)] & HAN:
        at += size
    return at


cdef inline int64_t _run(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int wanted) noexcept nogil:
    """Return where the run of ``wanted`` classes from ``at`` on ends."""
    cdef int size
    while _bit(s, data, at, end, &size) & wanted:
        at += size
    return at


cdef inline bint _line_end(uint8_t byte) noexcept nogil:
    return byte == c"\n" or byte == c"\r"


cdef inline int64_t _line_ends(const uint8_t *data, int64_t at, int64_t end, bint slash) noexcept nogil:
    while at < end and (_line_end(data[at]) or (slash and data[at] == c"/")):
        at += 1
    return at


cdef int64_t _contraction(const uint8_t *data, int64_t at, int64_t end, bint any_case) noexcept nogil:
    """'s 't 're 've 'm 'll 'd: return the end, or ``at`` when there is none."""
    cdef uint8_t first, second
    cdef uint8_t fold = 0x20 if any_case else 0
    if at + 1 >= end or data[at] != c"'":
        return at
    first = data[at + 1] | fold
    if first == c"s" or first == c"t" or first == c"m" or first == c"d":
        return at + 2
    if at + 2 >= end:
        return at
    second = data[at + 2] | fold
    if (first == c"r" or first == c"v") and second == c"e" or first == c"l" and second == c"l":
        return at + 3
    return at


cdef int64_t _blanks(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, bint lines) noexcept nogil:
    r"""``\s*[\r\n]+`` if ``lines``, then ``\s+(?!\S)``, then ``\s+``; at least one blank is at ``at``."""
    cdef int64_t here = at, previous = at, last_line = -1
    cdef int size
    while _bit(s, data, here, end, &size) & IS_SPACE:
        if _line_end(data[here]):
            last_line = here + 1
        previous = here
        here += size
    if lines and last_line >= 0:
        return last_line
    if here >= end or previous == at:
        return here
    return previous


cdef int64_t _digits(const Splitter *s, const uint8_t *data, int64_t at, int64_t end) noexcept nogil:
    cdef int64_t here = at
    cdef int size, count = 0
    while (not s.digits or count < s.digits) and _bit(s, data, here, end, &size) & IS_NUMBER:
        here += size
        count += 1
    return here


cdef int64_t _gpt2(const Splitter *s, const uint8_t *data, int64_t at, int64_t end) noexcept nogil:
    cdef int64_t start, found = _contraction(data, at, end, False)
    cdef int size, kind
    if found > at:
        return found
    start = at + 1 if data[at] == c" " else at
    kind = _bit(s, data, start, end, &size)
    if kind & IS_LETTER:
        return _run(s, data, start, end, IS_LETTER)
    if kind & IS_NUMBER:
        return _run(s, data, start, end, IS_NUMBER)
    if kind and not kind & IS_SPACE:
        return _run(s, data, start, end, ~(IS_SPACE | IS_LETTER | IS_NUMBER))
    return _blanks(s, data, at, end, False)


cdef int64_t _signs(
    const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int not_signs, bint slash
) noexcept nogil:
    r"""`` ?[^…]+[\r\n]*`` where ``not_signs`` are the classes in the brackets: the end, or ``at``."""
    cdef int64_t start = at + 1 if data[at] == c" " else at
    cdef int64_t found = _run(s, data, start, end, ~not_signs)
    return _line_ends(data, found, end, slash) if found > start else at


cdef int64_t _cl100k(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int letters) noexcept nogil:
    cdef int64_t found = _contraction(data, at, end, True)
    cdef int size, next_size
    cdef int kind = _bit(s, data, at, end, &size)
    if found > at:
        return found
    if kind & letters:
        return _run(s, data, at + size, end, letters)
    if kind & IS_NUMBER:
        return _digits(s, data, at, end)
    if not _line_end(data[at]) and _bit(s, data, at + size, end, &next_size) & letters:
        return _run(s, data, at + size, end, letters)
    found = _signs(s, data, at, end, letters | IS_SPACE | IS_NUMBER, False)
    return found if found > at else _blanks(s, data, at, end, True)


cdef int64_t _cased(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, bint han) noexcept nogil:
    """A word of O200K without what may stand before it: capitals, then small letters; the end, or ``at``."""
    cdef int64_t here = at, both = at
    cdef int size, kind = _cased_bit(s, data, at, end, &size, han)
    while kind & IS_HEAD:
        here += size
        if kind & IS_TAIL:
            both = here
        kind = _cased_bit(s, data, here, end, &size, han)
    if kind & IS_TAIL:
        while kind & IS_TAIL:
            here += size
            kind = _cased_bit(s, data, here, end, &size, han)
        return here
    # No small letter follows: the first expression gives back capitals until one without case can be its tail.
    return both if both > at else here


cdef int64_t _o200k(
    const Splitter *s, const uint8_t *data, int64_t at, int64_t end, bint short, bint han
) noexcept nogil:
    """``short``: with contractions; ``han``: Han characters are words of their own, and signs take no slash."""
    cdef int64_t found = _han_run(s, data, at, end) if han else at
    cdef int size, kind = _bit(s, data, at, end, &size)
    if found > at:
        return found
    if kind & IS_NUMBER:
        return _digits(s, data, at, end)
    if kind & IS_LETTER:
        found = _cased(s, data, at, end, han)
    elif not _line_end(data[at]):
        found = _o200k_prefixed(s, data, at, at + size, end, kind, han)
    if found > at:
        return _contraction(data, found, end, True) if short else found
    found = _signs(s, data, at, end, IS_LETTER | IS_SPACE | IS_NUMBER, not han)
    return found if found > at else _blanks(s, data, at, end, True)


cdef int64_t _o200k_prefixed(
    const Splitter *s, const uint8_t *data, int64_t at, int64_t start, int64_t end, int kind, bint han
) noexcept nogil:
    """A word behind one character that is neither letter nor number; a mark can also be the word's own beginning."""
    cdef int64_t found = _cased(s, data, start, end, han)
    if kind & IS_MARK:
        # With a tail, the first expression takes the mark as what stands before; without, as part of the word.
        if found > start and _has_tail(s, data, start, found):
            return found
        return _cased(s, data, at, end, han)
    return found if found > start else at


cdef bint _has_tail(const Splitter *s, const uint8_t *data, int64_t at, int64_t end) noexcept nogil:
    cdef int size, kind
    while at < end:
        kind = _bit(s, data, at, end, &size)
        if kind & IS_TAIL:
            return True
        at += size
    return False


cdef inline bint _east_asian(uint32_t char) noexcept nogil:
    """Ideographs and kana as DeepSeek's expression lists them."""
    return 0x4E00 <= char <= 0x9FA5 or 0x3040 <= char <= 0x30FF


cdef inline bint _ascii_letter(uint8_t byte) noexcept nogil:
    return c"a" <= (byte | 0x20) <= c"z"


cdef int64_t _bound(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, bint east_asian) noexcept nogil:
    """Return where the stretch without numbers (and East Asian characters) ends that begins at ``at``."""
    cdef uint32_t char
    cdef int size
    while at < end:
        char = _char(data, at, &size)
        if s.classes[char] & 15 == NUMBER or (east_asian and _east_asian(char)):
            break
        at += size
    return at


cdef int64_t _deepseek_match(const Splitter *s, const uint8_t *data, int64_t at, int64_t end) noexcept nogil:
    """The last of DeepSeek's three expressions at ``at``: the end, or ``at``."""
    cdef int64_t here
    cdef int size, next_size, kind = _bit(s, data, at, end, &size)
    cdef uint8_t byte = data[at]
    if at + 1 < end and byte < 0x80 and kind & IS_SIGN and _ascii_letter(data[at + 1]):
        here = at + 1
        while here < end and _ascii_letter(data[here]):
            here += 1
        return here
    if kind & (IS_LETTER | IS_MARK):
        return _run(s, data, at, end, IS_LETTER | IS_MARK)
    if not kind & IS_SIGN and not _line_end(byte):
        if _bit(s, data, at + size, end, &next_size) & (IS_LETTER | IS_MARK):
            return _run(s, data, at + size, end, IS_LETTER | IS_MARK)
    here = at + 1 if byte == c" " else at
    if _bit(s, data, here, end, &next_size) & IS_SIGN:
        return _line_ends(data, _run(s, data, here, end, IS_SIGN), end, False)
    return _blanks(s, data, at, end, True) if kind & IS_SPACE else at


cdef int64_t _deepseek(const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int64_t *bound) noexcept nogil:
    """Numbers and East Asian runs are cut out first; what matches nothing is a word up to the next match."""
    cdef int64_t here = at
    cdef int size
    if _bit(s, data, at, end, &size) & IS_NUMBER:
        return _digits(s, data, at, end)
    while here < end and _east_asian(_char(data, here, &size)):
        here += size
    if here > at:
        return here
    if bound[0] <= at:
        bound[0] = _bound(s, data, at, end, True)
    here = _deepseek_match(s, data, at, bound[0])
    if here > at:
        return here
    while here < bound[0] and _deepseek_match(s, data, here, bound[0]) == here:
        _char(data, here, &size)
        here += size
    return here


cdef int64_t _gpt2_digits(
    const Splitter *s, const uint8_t *data, int64_t at, int64_t end, int64_t *bound
) noexcept nogil:
    cdef int size
    if _bit(s, data, at, end, &size) & IS_NUMBER:
        return _digits(s, data, at, end)
    if bound[0] <= at:
        bound[0] = _bound(s, data, at, end, False)
    return _gpt2(s, data, at, bound[0])


cdef int64_t next_word(
    const Splitter *splitter, const uint8_t *data, int64_t at, int64_t end, int64_t *bound
) noexcept nogil:
    """Return where the word that begins at ``at`` < ``end`` ends."""
    if splitter.kind == CL100K:
        return _cl100k(splitter, data, at, end, IS_LETTER)
    if splitter.kind == CL100K_MARKS:
        return _cl100k(splitter, data, at, end, IS_LETTER | IS_MARK)
    if splitter.kind == O200K:
        return _o200k(splitter, data, at, end, True, False)
    if splitter.kind == TEKKEN:
        return _o200k(splitter, data, at, end, False, False)
    if splitter.kind == KIMI:
        return _o200k(splitter, data, at, end, True, True)
    if splitter.kind == DEEPSEEK3:
        return _deepseek(splitter, data, at, end, bound)
    if splitter.kind == GPT2_DIGITS:
        return _gpt2_digits(splitter, data, at, end, bound)
    return _gpt2(splitter, data, at, end)


cdef int survey(const uint8_t *classes, const uint8_t *data, int64_t size) noexcept nogil:
    """Return the flags of all characters of ``data`` together."""
    cdef int64_t at = 0
    cdef int width, flags = 0
    while at < size:
        if data[at] < 0x80:
            at += 1
            continue
        flags |= classes[_char(data, at, &width)]
        at += width
    return flags & 0xF0


def words(bytes classes not None, int kind, int digits, str text not None):
    """Return the words of ``text``."""
    cdef bytes data = text.encode()
    cdef Splitter splitter
    cdef int64_t at = 0, end = PyBytes_GET_SIZE(data), start, bound = 0
    if PyBytes_GET_SIZE(classes) != 0x110000:
        raise ValueError("classes must have one byte per code point")
    splitter.classes = <const uint8_t *>PyBytes_AS_STRING(classes)
    splitter.kind = kind
    splitter.digits = digits
    out = []
    while at < end:
        start = at
        at = next_word(&splitter, <const uint8_t *>PyBytes_AS_STRING(data), start, end, &bound)
        out.append(data[start:at].decode())
    return out
