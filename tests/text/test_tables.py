"""Both StreamTables behind one interface."""

import pytest

from smg._native.vocab_table import VocabTable
from smg.core.errors import GatewayError
from smg.core.stream import RowSpec
from smg.text.tables import make_table, vocabulary
from smg.text.tokenizer import Tokenizer
from tests.golden.families import family


class Tap:
    def __init__(self) -> None:
        self.text = ""

    def on_output(self, row, output):
        self.text += output.text


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tokenizers with and without a leading space to drop."""
    directory = tmp_path_factory.mktemp("models")
    found = []
    for name in ("qwen2", "llama2"):
        family(name).save(str(directory / f"{name}.json"))
        found.append(Tokenizer(directory / f"{name}.json"))
    return found


@pytest.mark.parametrize("native", [True, False])
def test_rows_of_different_models_live_beside_each_other(native, models):
    table, text = make_table(native), "Grüße an alle 👩‍👩‍👧 STOP und mehr"
    taps, rows = [], []
    for tokenizer in models * 2:
        taps.append(Tap())
        rows.append(table.open(RowSpec(stop_strings=("STOP",)), vocabulary(tokenizer.decoder), taps[-1]))
    streams = [tokenizer.encode(text) for tokenizer in models * 2]
    for at in range(max(map(len, streams))):
        for row, ids in zip(rows, streams, strict=True):
            table.feed(row, ids[at : at + 1])
    for row, tap in zip(rows, taps, strict=True):
        table.finish(row)
        assert tap.text == table.text(row) == "Grüße an alle 👩‍👩‍👧 "
        table.close(row)
    assert len(table) == 0


class Asked:
    """A decoder of three tokens that counts the questions."""

    size = 3

    def __init__(self) -> None:
        self.questions = 0

    def token_bytes(self, token):
        self.questions += 1
        return b" word"

    def first_bytes(self, token):
        self.questions += 1
        return b"word"

    def is_special(self, token):
        return token == 2


def test_a_decoder_is_asked_once_and_then_read_in_place(models):
    decoder = Asked()
    table = vocabulary(decoder)
    asked = decoder.questions
    assert vocabulary(decoder) is vocabulary(table) is table
    answers = [(table.first_bytes(token), table.token_bytes(token), table.is_special(token)) for token in range(3)]
    assert answers == [(b"word", b" word", False), (b"word", b" word", False), (b"word", b" word", True)]
    assert decoder.questions == asked


def test_tokenizers_decode_with_what_rows_read(models):
    assert all(isinstance(tokenizer.decoder, VocabTable) for tokenizer in models)


@pytest.mark.parametrize("stops", [("",), ("x" * 3_000_000,)])
def test_stop_strings_that_cannot_be_scanned_are_the_clients_fault(stops, models):
    table = make_table()
    with pytest.raises(GatewayError) as raised:
        table.open(RowSpec(stop_strings=stops), vocabulary(models[0].decoder), Tap())
    assert (raised.value.status, raised.value.param) == (400, "stop")
    assert len(table) == 0
