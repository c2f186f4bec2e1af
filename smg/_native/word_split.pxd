"""Words of byte-level BPE: where the regular expressions of published tokenizers cut a text.

``classes`` has one byte per code point: the class in the low four bits, flags above (smg/text/bpe/unicode_runs.py).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum CharClass:
    OTHER = 0  # controls, formats, unassigned
    UPPER = 1  # Lu, Lt
    LOWER = 2  # Ll
    LETTER = 3  # Lm, Lo
    MARK = 4
    NUMBER = 5
    SPACE = 6  # \s
    PUNCTUATION = 7
    SYMBOL = 8

cdef enum CharFlag:
    NFC_CHECK = 0x10  # may change, or change others, under NFC
    FOLDS = 0x20  # matches an ASCII letter when case is ignored
    RECENT = 0x40  # the library and some supported Python may disagree on its normal form
    HAN = 0x80  # of the Han script: mostly letters, but also numbers, signs and marks

cdef enum SplitKind:
    GPT2 = 0
    CL100K = 1  # also Qwen 2 and Llama 3
    CL100K_MARKS = 2  # marks count as letters (Qwen 3.5)
    O200K = 3
    TEKKEN = 4  # O200K without contractions
    DEEPSEEK3 = 5
    GPT2_DIGITS = 6  # numbers cut out one by one first
    KIMI = 7  # O200K with runs of Han characters as words of their own

cdef struct Splitter:
    const uint8_t *classes
    int kind
    int digits  # longest run of numbers in one word; 0: any

# ``bound`` is the caller's, one per stretch of text and 0 at first: where words may reach that are cut in several steps.
cdef int64_t next_word(
    const Splitter *splitter, const uint8_t *data, int64_t at, int64_t end, int64_t *bound
) noexcept nogil
cdef int survey(const uint8_t *classes, const uint8_t *data, int64_t size) noexcept nogil
