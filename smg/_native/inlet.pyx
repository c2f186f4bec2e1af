"""Messages of one generation, and who takes them (DESIGN 6, the source of the pump).

The seam for native consumers is ``Consumer``: whoever receives messages calls ``on_message`` once per whole message, and
``on_batch``, if there is one, when it has passed on what a read brought; that tells whether Python has to look. The two
consumers of this module collect for Python (``collect_messages``, ``collect_tokens``); ``stream_feed`` has the one that
feeds rows of a table, given to ``Inlet.attach``.

Collected messages wait as records: MESSAGE has its bytes in ``text``, TOKENS its ids in ``ids``. A chunk of the choice
the last record is about joins that record, so a burst of chunks costs Python one object.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from smg._native.buffer cimport Buffer, buffer_append, buffer_clear, buffer_reserve
from smg._native.wire cimport COLD, HOT, NO_MEMORY, Chunk, Layout, read_chunk

cdef enum:
    # Memory an inlet keeps between reads, in bytes per buffer.
    KEPT = 64 << 10
    # While a larger message is read, other threads may run. Whoever gives the GIL away has to wait for it afterwards.
    LARGE = 16 << 10
    # Kinds of records.
    MESSAGE = 0
    TOKENS = 1


cdef struct Record:
    uint32_t kind
    uint32_t index
    uint32_t prompt_tokens
    uint32_t cached_tokens
    uint32_t reasoning_tokens
    # Bytes of text, or ids.
    size_t count


cdef inline Record *_last(Buffer *records) noexcept nogil:
    if records.size == 0:
        return NULL
    return <Record *>(records.data + records.size) - 1


cdef inline Record *_record(Buffer *records, uint32_t kind) noexcept nogil:
    cdef Record *record = <Record *>buffer_reserve(records, sizeof(Record))
    if record is not NULL:
        record.kind = kind
        record.index = record.prompt_tokens = record.cached_tokens = record.reasoning_tokens = 0
        record.count = 0
        records.size += sizeof(Record)
    return record


cdef int collect_messages(void *row, const uint8_t *message, size_t size) noexcept nogil:
    """Consumer of any contract: keep the message's bytes. ``row`` is a Collection."""
    cdef Collection *collection = <Collection *>row
    cdef Record *record
    if not buffer_append(&collection.text, message, size):
        return NO_ROOM
    record = _record(&collection.records, MESSAGE)
    if record is NULL:
        return NO_ROOM
    record.count = size
    return HELD


cdef bint _new(const Collection *collection, const Chunk *chunk) noexcept nogil:
    """The chunk has a label that Python has not been shown."""
    if chunk.label is NULL:
        return False
    if chunk.label_size != collection.label.size:
        return True
    return chunk.label_size != 0 and memcmp(chunk.label, collection.label.data, chunk.label_size) != 0


cdef int read_tokens(
    const Collection *collection, const uint8_t *message, size_t size, Chunk *chunk, Buffer *ids
) noexcept nogil:
    """``read_chunk``, but a chunk with a new label is COLD. The collection remembers it when it collects the message."""
    cdef size_t before = ids.size
    cdef int verdict = read_chunk(message, size, collection.layout, chunk, ids)
    if verdict == HOT and _new(collection, chunk):
        ids.size = before
        return COLD
    return verdict


cdef int collect_tokens(void *row, const uint8_t *message, size_t size) noexcept nogil:
    """Consumer of the layout's contract: keep a plain chunk's ids, any other message's bytes. ``row`` is a Collection."""
    cdef Collection *collection = <Collection *>row
    cdef Chunk chunk
    cdef size_t before = collection.ids.size
    cdef int verdict = read_chunk(message, size, collection.layout, &chunk, &collection.ids)
    cdef Record *record
    if verdict == NO_MEMORY:
        return NO_ROOM
    if verdict != HOT:
        return collect_messages(row, message, size)
    if _new(collection, &chunk):
        collection.ids.size = before
        collection.label.size = 0
        if not buffer_append(&collection.label, chunk.label, chunk.label_size):
            return NO_ROOM
        return collect_messages(row, message, size)
    record = _last(&collection.records)
    if record is NULL or record.kind != TOKENS or record.index != chunk.index:
        record = _record(&collection.records, TOKENS)
        if record is NULL:
            return NO_ROOM
        record.index = chunk.index
    record.count += (collection.ids.size - before) // sizeof(uint32_t)
    record.prompt_tokens = chunk.prompt_tokens
    record.cached_tokens = max(record.cached_tokens, chunk.cached_tokens)
    record.reasoning_tokens = max(record.reasoning_tokens, chunk.reasoning_tokens)
    return HELD


cdef void _clear(Collection *collection, size_t keep) noexcept:
    buffer_clear(&collection.records, keep)
    buffer_clear(&collection.ids, keep)
    buffer_clear(&collection.text, keep)


cdef class Tokens:
    """New ids of one choice, of one or more chunks.

    Counts are the engine's: of the prompt the last, others the highest.
    """

    def __repr__(self):
        counts = f"{self.prompt_tokens}, {self.cached_tokens}, {self.reasoning_tokens}"
        return f"Tokens({self.index}, {self.ids}, {counts})"


cdef class Inlet:
    """Messages that somebody receives, for whatever consumer is attached; it collects for Python at first.

    With ``layout``, plain chunks of that contract are collected as Tokens, else every message as bytes. So is a chunk
    whose label is not that of the one before.
    """

    def __init__(self, Layout layout=None):
        self.layout = layout
        self.collection.layout = NULL if layout is None else &layout.fields
        self.attach(collect_messages if layout is None else collect_tokens, NULL, <void *>&self.collection, None)

    def __dealloc__(self):
        _clear(&self.collection, 0)
        buffer_clear(&self.collection.label, 0)

    def abandon(self):
        """Drop what has been collected: nobody will take it."""
        _clear(&self.collection, 0)

    cdef void attach(self, message_fn on_message, batch_fn on_batch, void *row, object feed) noexcept:
        """Send further messages to this consumer; ``row`` lives as long as ``feed``, which is kept alive here."""
        self.consumer = Consumer(on_message, on_batch, row)
        self.feed = feed

    cdef list collected(self):
        """Empty the collection into Tokens and bytes, in order.

        Records of one choice are joined where no message lies between them, so interleaved choices have one each.
        """
        cdef Record *record = <Record *>self.collection.records.data
        cdef Record *end = record + self.collection.records.size // sizeof(Record)
        cdef const uint32_t *id = <const uint32_t *>self.collection.ids.data
        cdef const char *text = <const char *>self.collection.text.data
        cdef size_t place
        cdef Tokens tokens = None
        cdef dict running = {}
        cdef list out = []
        while record < end:
            if record.kind == MESSAGE:
                out.append(PyBytes_FromStringAndSize(text, <Py_ssize_t>record.count))
                text += record.count
                tokens = None
                running.clear()
            else:
                if tokens is None or tokens.index != record.index:
                    tokens = running.get(record.index)
                if tokens is None:
                    tokens = Tokens.__new__(Tokens)
                    tokens.index = record.index
                    tokens.ids = []
                    running[record.index] = tokens
                    out.append(tokens)
                for place in range(record.count):
                    tokens.ids.append(id[place])
                id += record.count
                tokens.prompt_tokens = record.prompt_tokens
                tokens.cached_tokens = max(tokens.cached_tokens, record.cached_tokens)
                tokens.reasoning_tokens = max(tokens.reasoning_tokens, record.reasoning_tokens)
            record += 1
        _clear(&self.collection, KEPT)
        return out


cdef class Intake(Inlet):
    """Messages that Python receives: ``push`` gives them to the consumer, ``take`` returns what was collected."""

    def push(self, bytes message not None):
        """Give one message to the consumer; returns whether Python has to look. Raises MemoryError."""
        cdef const uint8_t *data = message
        cdef size_t size = len(message)
        cdef int due
        if size > LARGE:
            with nogil:
                due = _push(&self.consumer, data, size)
        else:
            due = _push(&self.consumer, data, size)
        if due < 0:
            raise MemoryError("no memory for a message")
        return due > 0

    def take(self):
        """Empty the collection: Tokens and bytes, in order."""
        return self.collected()


cdef int _push(Consumer *consumer, const uint8_t *message, size_t size) noexcept nogil:
    """Returns 1 when Python has to look, 0 when not, -1 without memory."""
    if consumer.on_message(consumer.row, message, size) < 0:
        return -1
    return consumer.on_batch is NULL or consumer.on_batch(consumer.row)
