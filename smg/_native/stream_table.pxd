"""The native StreamTable for a native source: it looks rows up with the GIL and feeds them without."""

from smg._native.counter cimport Counter
from smg._native.stream_row cimport Bytes, Ids, Row, Template


cdef class Cell:
    cdef Row row
    cdef Template template
    cdef int handle
    cdef object spec
    cdef object tap
    # None while the row is tapped.
    cdef object sink
    # Keep what ``template`` and ``row`` point into alive.
    cdef Counter counter
    cdef object vocab
    cdef object automaton
    cdef object marks
    cdef object json
    cdef object python
    cdef object matched(self)
    cdef str fresh_text(self)
    cdef bint tells(self)


cdef class StreamTable:
    cdef object output
    # By handle; None where a row was closed, whose handle is among ``free``.
    cdef list cells
    cdef list free
    # Ids being fed and events being written; used only while no Python code can run.
    cdef Ids ids_in
    cdef Bytes events
    cdef Cell cell_at(self, object row)
    cdef Py_ssize_t take_in(self, object ids) except -1
    cdef int feed_cell(self, Cell cell, object ids, object logprobs) except -1
    cdef bytes written(self)
    cdef int deliver(self, Cell cell, object data, object ids, object logprobs) except -1
