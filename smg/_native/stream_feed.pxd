"""Rows of the StreamTable as consumers of an engine's messages (see ``stream_feed.pyx``)."""

from libc.stdint cimport uint32_t

from smg._native.buffer cimport Buffer
from smg._native.inlet cimport Collection
from smg._native.stream_row cimport Bytes, Row, Template


cdef struct Lane:
    Row *row
    # NULL while the row is tapped.
    const Template *template
    # The engine's counts, and how many ids the row had at ``resume``.
    uint32_t prompt_tokens
    uint32_t cached_tokens
    uint32_t reasoning_tokens
    Py_ssize_t told
    # It got a message since the last pause.
    bint fed


cdef struct Pump:
    Lane *lanes
    uint32_t count
    # Messages go to the rows, not to ``collection``.
    bint open
    # Python has to decide something.
    bint attention
    # Memory ran out while a row was fed.
    bint broken
    # The client's socket, -1 while it is not ours to write to, and when it last took something (monotonic seconds).
    int fd
    double last_sent
    Collection *collection
    Buffer ids
    Bytes events
    # The end of a chunk whose beginning the socket has taken.
    Buffer rest
