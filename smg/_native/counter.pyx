"""Running numbers of one response's events (DESIGN 6, hot events).

Python takes some, for what opens and closes; native code takes one for each piece of text. Both run on the event loop's
thread, so there is nothing to lock.
"""


cdef class Counter:
    """Running event number of one response (``sequence_number``), shared by all its templates."""

    def __init__(self, long long value=0):
        self.value = value

    def take(self):
        """Return the next number and count it."""
        cdef long long value = self.value
        self.value += 1
        return value
