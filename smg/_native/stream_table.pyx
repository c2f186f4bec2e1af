"""The native StreamTable: ids to text, special tokens, stops, and the way out (``core.stream.StreamTable``).

A direct row's events, one for each token that yields text, are written behind each other and go to the sink in one call
per feed; a tapped row's tap gets one ``RowOutput`` per feed. A row that a parser reads goes direct up to what the parser
waits for, and is tapped from there on.

The loops over tokens (``stream_row``) are free of Python, so that a native source can run them without the GIL.
``feed`` itself holds on to it: a batch takes a microsecond or two, and whoever gives the GIL away beside busy threads
may wait milliseconds to have it back.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from smg._native.counter cimport Counter
from smg._native.json_scan cimport JsonScan
from smg._native.python_scan cimport PythonScan
from smg._native.small_int cimport small_int
from smg._native.stop_scan cimport StopAutomaton
from smg._native.stream_row cimport (
    Bytes,
    Row,
    Template,
    ids_append,
    ids_room,
    row_feed,
    row_feed_direct,
    row_flush,
    row_wait,
    row_write_ready,
    template_fill,
    template_free,
)
from smg._native.vocab_table cimport VocabTable

cdef extern from "Python.h":
    PyObject **PySequence_Fast_ITEMS(object sequence)

cdef enum:
    # Room for events that one large feed needed is given back.
    KEPT_EVENT_BYTES = 256 * 1024
    KEPT_AUTOMATA = 256

# ``core.stream.SEAL``.
SEAL = "\ufdd0"

# Clients mostly repeat their stop strings, and the choices of one request always do; parsers have few states.
_automata = {}


cdef int _sorted_ids(Ids *ids, tokens) except -1:
    # An id that does not fit cannot be fed either.
    for token in sorted(tokens):
        if -(2**31) <= token < 2**31:
            ids_append(ids, token)
    return 0


cdef StopAutomaton _automaton(tuple stops):
    automaton = _automata.get(stops)
    if automaton is None:
        # A lone surrogate has no UTF-8 form and can be in no text: passed on, it never matches.
        automaton = StopAutomaton([stop.encode("utf-8", "surrogatepass") for stop in stops])
        if len(_automata) >= KEPT_AUTOMATA:
            _automata.clear()
        _automata[stops] = automaton
    return automaton


cdef class Cell:
    """One row and the Python objects that belong to it."""

    def __cinit__(self, spec, decoder, tap):
        cdef VocabTable vocab = VocabTable.of(decoder)
        cdef StopAutomaton automaton
        self.spec = spec
        self.tap = tap
        self.vocab = vocab
        self.row.vocab = &vocab.vocab
        self.row.stop = -1
        self.row.skip_special = spec.skip_special_tokens
        self.row.stop_visible = spec.stop_visible
        self.row.min_tokens = spec.min_tokens
        self.row.at_start = not spec.continues
        if spec.stop_strings:
            automaton = _automaton(spec.stop_strings)
            self.automaton = automaton
            self.row.stops = &automaton.dfa
        _sorted_ids(&self.row.ends, spec.end_ids)
        _sorted_ids(&self.row.shown, {marker.token for marker in spec.markers if marker.token is not None})
        _sorted_ids(
            &self.row.sealed,
            {marker.token for marker in spec.markers if marker.sealed and marker.token is not None},
        )

    def __dealloc__(self):
        free(self.row.text.data)
        free(self.row.taken.data)
        free(self.row.ends.data)
        free(self.row.shown.data)
        free(self.row.sealed.data)
        free(self.row.inside.data)
        template_free(&self.template)

    cdef object matched(self):
        """What ended the row: a stop string, an id that is no EOS, or None."""
        if self.row.stop >= 0:
            return self.spec.stop_strings[self.row.stop]
        if not self.row.ended:
            return None
        token = self.row.taken.data[self.row.taken.size - 1]
        return None if token in self.spec.eos_ids else token

    cdef bint tells(self):
        """Whether the tap hears of what comes."""
        return self.sink is None or self.row.over or self.row.due

    cdef str fresh_text(self):
        """Take the text that may leave."""
        cdef Py_ssize_t start = self.row.sent
        self.row.sent = self.row.ready
        if self.row.ready == start:
            return ""
        return PyUnicode_DecodeUTF8(<const char *>self.row.text.data + start, self.row.ready - start, NULL)


cdef class StreamTable:
    """Rows of running choices. Not thread-safe: it belongs to one event loop.

    ``output`` makes the taps' argument: ``core.stream.RowOutput`` or what takes the same six arguments in order. All
    methods raise KeyError for a handle that is not open.
    """

    def __cinit__(self):
        self.cells = []
        self.free = []

    def __init__(self, output):
        self.output = output

    def __dealloc__(self):
        free(self.ids_in.data)
        free(self.events.data)

    def open(self, spec, decoder, tap):
        """Open a tapped row and return its handle.

        Give a ``VocabTable`` as ``decoder``: of another decoder one is built at its first row (``VocabTable.of``).
        Raises ValueError for an empty stop string, or more of them than ``StopAutomaton`` takes.
        """
        cdef Cell cell = Cell(spec, decoder, tap)
        if self.free:
            cell.handle = self.free.pop()
            self.cells[cell.handle] = cell
        else:
            cell.handle = <int>len(self.cells)
            self.cells.append(cell)
        return cell.handle

    def direct(self, row, sink, template, Counter counter not None, wait=None):
        """Send the row's further text straight to ``sink``; the tap then only hears of the stop and the end.

        With ``wait`` only up to what a parser waits for: then the tap gets the rest, and the row is tapped again. Raises
        ValueError for a template whose pieces and holes do not fit, or with a hole of an unknown name.
        """
        cdef Cell cell = self.cell_at(row)
        cdef StopAutomaton marks
        cdef JsonScan json
        cdef PythonScan python
        cdef Template filled = Template(NULL, NULL, NULL, 0, NULL)
        try:
            template_fill(&filled, template.pieces, template.holes, &counter.value)
        except BaseException:
            template_free(&filled)
            raise
        template_free(&cell.template)
        cell.template = filled
        cell.sink = sink
        cell.counter = counter
        cell.row.parsed = False
        if wait is not None:
            marks = _automaton(wait.markers) if wait.markers else None
            json, python = wait.json, wait.python
            cell.marks, cell.json, cell.python = marks, json, python
            row_wait(
                &cell.row,
                NULL if marks is None else &marks.dfa,
                NULL if json is None else &json.state,
                NULL if python is None else &python.state,
                wait.quoted,
                wait.kind == "held",
            )

    def feed(self, row, ids, logprobs=None):
        """Feed new ids; False when the row has stopped (now or before) and the engine should be told.

        Ids after a stop are discarded and not counted. Raises ValueError, before anything is taken, for an id that no
        vocabulary can have (beyond 31 bits).
        """
        cdef Cell cell = self.cell_at(row)
        self.feed_cell(cell, ids, logprobs)
        return not cell.row.over

    def feed_many(self, batch):
        """Feed ``(row, ids)`` pairs, as one read of an upstream brought them; return the rows that have stopped.

        A row that a tap closes on the way is passed over. Raises as ``feed``; KeyError before anything is fed.
        """
        cdef Cell cell
        cdef list cells = [self.cell_at(row) for row, _ in batch], stopped = []
        for cell, (row, ids) in zip(cells, batch):
            self.feed_cell(cell, ids, None)
            if cell.row.over:
                stopped.append(row)
        return stopped

    def finish(self, row):
        """End of the engine's stream: flush held text and undecoded bytes (as U+FFFD) to the sink or the tap."""
        cdef Cell cell = self.cell_at(row)
        cdef bytes data = None
        if cell.row.over:
            return
        row_flush(&cell.row)
        if cell.sink is not None:
            self.events.size = 0
            row_write_ready(&cell.row, &cell.template, &self.events)
            data = self.written()
        self.deliver(cell, data, (), None)

    def ids(self, row):
        """All ids the row has taken (resume, budgets, storage)."""
        cdef Cell cell = self.cell_at(row)
        cdef Py_ssize_t at
        return [cell.row.taken.data[at] for at in range(cell.row.taken.size)]

    def text(self, row):
        """All text the row has emitted, without seals."""
        cdef Cell cell = self.cell_at(row)
        cdef str text
        if cell.row.sent == 0:
            return ""
        text = PyUnicode_DecodeUTF8(<const char *>cell.row.text.data, cell.row.sent, NULL)
        return text.replace(SEAL, "") if cell.row.sealed.size else text

    def close(self, row):
        """Forget the row."""
        cdef Cell cell = self.cell_at(row)
        # A tap may close a row that is being fed.
        cell.row.over = True
        self.cells[cell.handle] = None
        self.free.append(cell.handle)

    def __len__(self):
        return len(self.cells) - len(self.free)

    cdef Cell cell_at(self, object row):
        """The open row with this handle. Raises KeyError when there is none."""
        cdef Py_ssize_t handle = row
        cdef Cell cell = None
        if 0 <= handle < len(self.cells):
            cell = self.cells[handle]
        if cell is None:
            raise KeyError(row)
        return cell

    cdef Py_ssize_t take_in(self, object ids) except -1:
        """Convert ``ids`` to ``ids_in`` and return how many there are."""
        cdef object fast = PySequence_Fast(ids, "ids must be a sequence")
        cdef PyObject **items = PySequence_Fast_ITEMS(fast)
        cdef Py_ssize_t at, count = PySequence_Fast_GET_SIZE(fast)
        cdef int32_t *out
        cdef long long token = 0
        self.ids_in.size = 0
        out = ids_room(&self.ids_in, count)
        for at in range(count):
            if not small_int(items[at], &token):
                token = <object>items[at]
            if not -(2**31) <= token < 2**31:
                raise ValueError(f"token id {token} is beyond 31 bits")
            out[at] = <int32_t>token
        self.ids_in.size = count
        return count

    cdef int feed_cell(self, Cell cell, object ids, object logprobs) except -1:
        """Do what ``feed`` does. What a tap does to the table meanwhile comes after the last look at ``ids_in``."""
        cdef Py_ssize_t taken
        cdef bytes data = None
        if cell.row.over or self.take_in(ids) == 0:
            return 0
        if cell.sink is None:
            taken = row_feed(&cell.row, self.ids_in.data, self.ids_in.size)
        else:
            self.events.size = 0
            taken = row_feed_direct(&cell.row, &cell.template, self.ids_in.data, self.ids_in.size, &self.events)
            data = self.written()
        if logprobs is not None:
            # A hidden end token is none of the text.
            logprobs = logprobs[: taken - (cell.row.ended and not cell.row.stop_visible)]
        if taken < self.ids_in.size:
            ids = ids[:taken]
        self.deliver(cell, data, ids, logprobs)
        return 0

    cdef bytes written(self):
        """Take the events out of the buffer; None when there are none."""
        if self.events.size == 0:
            return None
        data = PyBytes_FromStringAndSize(<char *>self.events.data, self.events.size)
        if self.events.room > KEPT_EVENT_BYTES:
            free(self.events.data)
            self.events = Bytes(NULL, 0, 0)
        return data

    cdef int deliver(self, Cell cell, object data, object ids, object logprobs) except -1:
        """Send a feed's outcome on. The tap of a direct row hears only of its end, or when its parser is due."""
        cdef str text = ""
        cdef bint over = cell.row.over
        if data is not None:
            cell.sink.write(data)
        if not cell.tells():
            return 0
        if cell.row.parsed:
            cell.sink = None
            cell.row.due = False
        if cell.sink is None:
            text = cell.fresh_text()
        # The end of the engine's stream (no ids) is a stop only when it completed a stop string.
        matched = cell.matched() if over else None
        stopped = over if ids else matched is not None
        cell.tap.on_output(cell.handle, self.output(cell.spec.choice, text, ids, logprobs, stopped, matched))
        return 0
