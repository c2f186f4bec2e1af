"""Rows of the StreamTable fed by messages of an engine: the pump (DESIGN 6, the token path).

A readable batch goes message → ids → text → events → one HTTP chunk on the client's socket, all without the GIL. Python is
woken for what needs a decision: a row that stopped, a message that is no plain chunk, a socket that takes no more, or a
sink that has none. From such a moment on messages are collected, as without a feed, until Python has worked through them
and calls ``resume``; so the order of a stream is kept, and a client that does not read stalls its own engine stream.

Rows that are tapped (buffered answers) only gather text and ids; their taps get them in one piece. A row that a parser
reads wakes Python when the parser is due, and for each batch until it goes direct again.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from smg._native.buffer cimport Buffer, buffer_append, buffer_clear
from smg._native.inlet cimport NO_ROOM, TAKEN, Collection, Inlet, Tokens, collect_tokens, read_tokens
from smg._native.monotonic cimport monotonic
from smg._native.stream_row cimport Bytes, row_feed, row_feed_direct
from smg._native.stream_table cimport Cell, StreamTable
from smg._native.wire cimport HOT, NO_MEMORY, Chunk

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    Py_ssize_t sendmsg(int fd, const msghdr *message, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    # A batch with more events than this many bytes goes out in several chunks, so that a client that does not read is
    # noticed before all of a large batch has become text.
    HIGH_WATER = 64 << 10
    KEPT = 64 << 10
    CHUNK_HEAD = 20


cdef inline bint _fits(const Pump *pump, const Chunk *chunk) noexcept nogil:
    """The chunk can be fed as it is: to a row that runs and has no parser at work, with ids that a vocabulary can have."""
    cdef const int32_t *id = <const int32_t *>pump.ids.data
    cdef const Lane *lane
    cdef size_t place
    if chunk.index >= pump.count:
        return False
    lane = &pump.lanes[chunk.index]
    if lane.row.over or (lane.row.parsed and lane.template is NULL):
        return False
    for place in range(pump.ids.size // sizeof(int32_t)):
        if id[place] < 0:
            return False
    return True


cdef int _on_message(void *consumer, const uint8_t *message, size_t size) noexcept nogil:
    cdef Pump *pump = <Pump *>consumer
    cdef Chunk chunk
    cdef Lane *lane
    cdef int verdict
    if pump.broken:
        return NO_ROOM
    if not pump.open:
        return collect_tokens(pump.collection, message, size)
    pump.ids.size = 0
    verdict = read_tokens(pump.collection, message, size, &chunk, &pump.ids)
    if verdict == NO_MEMORY:
        return NO_ROOM
    if verdict != HOT or not _fits(pump, &chunk):
        _need_python(pump)
        return collect_tokens(pump.collection, message, size)
    lane = &pump.lanes[chunk.index]
    lane.fed = True
    lane.prompt_tokens = chunk.prompt_tokens
    lane.cached_tokens = max(lane.cached_tokens, chunk.cached_tokens)
    lane.reasoning_tokens = max(lane.reasoning_tokens, chunk.reasoning_tokens)
    # Set in advance: the error of a function that ran out of memory cannot be caught here.
    pump.broken = True
    _feed(pump, lane)
    if pump.broken:
        return NO_ROOM
    if lane.row.over or lane.row.due:
        _need_python(pump)
    elif pump.events.size >= HIGH_WATER and not _send(pump):
        _need_python(pump)
    return TAKEN


cdef int _feed(Pump *pump, Lane *lane) except -1 nogil:
    cdef const int32_t *ids = <const int32_t *>pump.ids.data
    cdef Py_ssize_t count = <Py_ssize_t>(pump.ids.size // sizeof(int32_t))
    if lane.template is NULL:
        row_feed(lane.row, ids, count)
    else:
        row_feed_direct(lane.row, lane.template, ids, count, &pump.events)
    pump.broken = False
    return 0


cdef inline void _need_python(Pump *pump) noexcept nogil:
    pump.open = False
    pump.attention = True


cdef bint _on_batch(void *consumer) noexcept nogil:
    """What the read brought has been fed. True: Python has to look at it."""
    cdef Pump *pump = <Pump *>consumer
    if pump.broken or not pump.open:
        return True
    return pump.events.size != 0 and not _send(pump)


cdef bint _send(Pump *pump) noexcept nogil:
    """Send the events as one chunk; False when the socket has not taken all of it, or is not ours."""
    cdef char[CHUNK_HEAD] head
    cdef const char *tail = b"\r\n"
    cdef iovec[3] parts
    cdef msghdr message
    cdef Py_ssize_t taken
    cdef size_t skip, part
    cdef int place
    if pump.fd < 0 or pump.rest.size:
        return False
    parts[0].iov_base, parts[0].iov_len = <void *>head, <size_t>snprintf(head, CHUNK_HEAD, "%zx\r\n", pump.events.size)
    parts[1].iov_base, parts[1].iov_len = <void *>pump.events.data, <size_t>pump.events.size
    parts[2].iov_base, parts[2].iov_len = <void *>tail, 2
    memset(&message, 0, sizeof(message))
    message.msg_iov, message.msg_iovlen = parts, 3
    taken = sendmsg(pump.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
    while taken < 0 and errno == EINTR:
        taken = sendmsg(pump.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
    if taken <= 0:
        # Nothing has left, so the events can go another way. That the peer has closed is for the transport to find out.
        return False
    pump.last_sent = monotonic()
    skip = <size_t>taken
    for place in range(3):
        part = min(skip, parts[place].iov_len)
        skip -= part
        if not buffer_append(&pump.rest, <const uint8_t *>parts[place].iov_base + part, parts[place].iov_len - part):
            pump.broken = True
            return False
    pump.events.size = 0
    return pump.rest.size == 0


cdef class StreamFeed:
    """Feeds the messages of ``inlet`` to ``rows`` of ``table``, row ``i`` being the choice ``i`` of the generation."""

    cdef Pump pump
    cdef StreamTable table
    cdef list cells
    cdef object sink
    cdef bint has_socket

    def __init__(self, Inlet inlet not None, StreamTable table not None, rows):
        cdef Cell cell
        cdef Lane *lane
        if self.pump.lanes is not NULL or not self.feeds(table, rows):
            raise ValueError("these rows cannot be fed natively")
        self.table = table
        self.cells = [table.cell_at(row) for row in rows]
        self.pump.count = <uint32_t>len(self.cells)
        self.pump.lanes = <Lane *>calloc(self.pump.count, sizeof(Lane))
        if self.pump.lanes is NULL:
            raise MemoryError
        lane = self.pump.lanes
        for cell in self.cells:
            lane.row = &cell.row
            lane += 1
        self.aim()
        self.pump.fd = -1
        self.pump.collection = &inlet.collection
        inlet.attach(_on_message, _on_batch, <void *>&self.pump, self)

    def __dealloc__(self):
        free(self.pump.lanes)
        free(self.pump.events.data)
        buffer_clear(&self.pump.ids, 0)
        buffer_clear(&self.pump.rest, 0)

    @staticmethod
    def feeds(StreamTable table not None, rows):
        """Tell whether these rows can be fed natively: tapped or direct alike, one sink.

        Rows that a parser reads are alike by turns.
        """
        cdef Cell cell, first
        cells = [table.cell_at(row) for row in rows]
        if not cells:
            return False
        first = next((cell for cell in cells if (<Cell>cell).sink is not None), cells[0])
        for cell in cells:
            if cell.sink is not first.sink and not (cell.sink is None and cell.row.parsed):
                return False
        return True

    cdef int aim(self) except -1:
        """Find out which rows are direct now, and where they go."""
        cdef Cell cell
        cdef Lane *lane = self.pump.lanes
        self.sink = None
        for cell in self.cells:
            lane.template = NULL if cell.sink is None else &cell.template
            if cell.sink is not None:
                self.sink = cell.sink
            lane += 1
        self.has_socket = hasattr(self.sink, "lend")
        return 0

    @property
    def last_sent(self):
        """When the sink's socket last took bytes, in seconds of the monotonic clock; 0.0: never."""
        return self.pump.last_sent

    def resume(self):
        """Feed what comes from now on. False: the sink has a socket that is still busy, try ``arm`` later."""
        cdef uint32_t index
        self.check()
        self.aim()
        self.pump.open = self.pump.collection.records.size == 0
        for index in range(self.pump.count):
            # Python may have fed the row meanwhile.
            if not self.pump.lanes[index].fed:
                self.pump.lanes[index].told = self.pump.lanes[index].row.taken.size
        self.arm()
        return self.pump.fd >= 0 or not self.has_socket

    def arm(self):
        """Borrow the sink's socket, if the feed runs and there is nothing to be sent before."""
        if self.has_socket and self.pump.open and self.pump.fd < 0 and not self.pump.events.size:
            self.pump.fd = self.sink.lend(self)

    def disarm(self):
        """Give the socket back: somebody else wants to write to it. What comes next waits for ``pause``."""
        if self.pump.fd < 0:
            return
        self.pump.fd = -1
        rest = PyBytes_FromStringAndSize(<const char *>self.pump.rest.data, <Py_ssize_t>self.pump.rest.size)
        buffer_clear(&self.pump.rest, KEPT)
        self.sink.give_back(rest)

    def pause(self):
        """Stop feeding: messages are collected again. Hand on what is left, and tell the taps what they have to know.

        Returns one Tokens without ids, with the engine's counts, for each choice that was fed since ``resume``.
        """
        cdef list notes = []
        cdef uint32_t index
        self.pump.open = self.pump.attention = False
        self.disarm()
        if self.pump.events.size:
            data = PyBytes_FromStringAndSize(<const char *>self.pump.events.data, self.pump.events.size)
            self.pump.events.size = 0
            if self.pump.events.room > KEPT:
                free(self.pump.events.data)
                self.pump.events = Bytes(NULL, 0, 0)
            self.sink.write(data)
        self.check()
        for index in range(self.pump.count):
            if self.pump.lanes[index].fed:
                notes.append(self.tell(index))
        return notes

    cdef int check(self) except -1:
        if self.pump.broken:
            raise MemoryError("no memory for a row")
        return 0

    cdef Tokens tell(self, uint32_t index):
        """Tell a row's tap what it has to know, and return the counts for those who count."""
        cdef Lane *lane = &self.pump.lanes[index]
        cdef Cell cell = self.cells[index]
        cdef Tokens tokens = Tokens.__new__(Tokens)
        cdef Py_ssize_t at
        tokens.index, tokens.ids = index, []
        tokens.prompt_tokens, tokens.cached_tokens = lane.prompt_tokens, lane.cached_tokens
        tokens.reasoning_tokens = lane.reasoning_tokens
        lane.fed = False
        if lane.row.taken.size > lane.told and (lane.template is NULL or cell.tells()):
            ids = [lane.row.taken.data[at] for at in range(lane.told, lane.row.taken.size)]
            self.table.deliver(cell, None, ids, None)
        return tokens
