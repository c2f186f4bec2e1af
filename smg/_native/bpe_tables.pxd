"""The tables of a byte-level BPE in one piece of memory, for the encoder that reads them in place."""

from libc.stdint cimport uint8_t, uint64_t

from smg._native.bpe_merge cimport Merges
from smg._native.word_split cimport Splitter
from smg._native.word_table cimport Words


cdef struct Tables:
    Merges merges
    # Words of the vocabulary that are taken as they are; without entries where the model merges all.
    Words whole
    Splitter splitter


cdef int open_tables(Tables *tables, const uint8_t *data, uint64_t size) noexcept nogil
