"""Which StreamTable runs, and the decoders it reads.

One table holds the rows of all models: every decoder of generated text is two byte strings per id (``token_bytes``), so
the native table takes them all and no second kind of row has to live beside it. The Python table does the same and is
kept as the reference.
"""

from smg._native import stream_table
from smg._native.vocab_table import VocabTable
from smg.core.errors import bad_request
from smg.core.stream import Decoder, RowOutput, RowSpec, StreamTable, Tap
from smg.text.stream_table import PythonStreamTable


class NativeStreamTable(stream_table.StreamTable):
    """The native table in the terms of the gateway."""

    def __init__(self) -> None:
        super().__init__(RowOutput)

    def open(self, spec: RowSpec, decoder: Decoder, tap: Tap) -> int:
        """Open a tapped row and return its handle.

        Raises:
            GatewayError: 400 for stop strings that are empty, or too many or too long to scan for (some megabytes).
        """
        try:
            return super().open(spec, decoder, tap)
        except ValueError as error:
            raise bad_request(str(error), "stop") from None


def make_table(native: bool = True) -> StreamTable:
    """Make the StreamTable of one event loop."""
    return NativeStreamTable() if native else PythonStreamTable()


def vocabulary(decoder: Decoder) -> Decoder:
    """Return ``decoder`` as the table that native rows read without asking Python.

    Asks it for every id once, up to a second for the largest vocabularies: call it where the tokenizer is loaded and
    open rows with the result. A row opened with another decoder builds the table at that moment.
    """
    return VocabTable.of(decoder)
