"""A form that is passed on as it is: an upload for an HTTP engine (DESIGN 3, raw; field case AD-01)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.core.backends import RawPayload
from smg.core.request import Hints
from smg.engines.http.form import Form
from smg.fleet.records import ModelRecord, WorkerRecord
from smg.pipeline.raw_call import name_for
from smg.routing.router import Query

# A second of 16 kHz PCM is 32 kB, and a model makes some 25 tokens of it.
_BYTES_PER_TOKEN = 1280


class FormCall(msgspec.Struct):
    """One such request; see ``raw_call.RawCall`` for what its members mean."""

    model: ModelRecord
    form: Form
    paths: tuple[str, ...]
    feature: str
    headers: dict[str, str]
    hints: Hints = Hints()
    stream: bool = False
    hide_usage: bool = False

    @property
    def asked(self) -> str:
        return self.form.text("model") or self.model.id

    def query(self) -> Query:
        """What routing gets to see: no prompt, since what is uploaded is nobody's prefix; only how much it is."""
        tokens = self.form.size // _BYTES_PER_TOKEN
        return Query(self.model.id, hints=self.hints, tokens=tokens, needs=frozenset({self.feature}))

    def body(self, worker: WorkerRecord, more: Mapping[str, Any] | None = None) -> RawPayload:
        """The body for ``worker``: the model by the name it has there, all else as the client sent it.

        ``more`` is for bodies in JSON; a data-parallel rank is told by its header alone.
        """
        given = self.form.text("model")
        name = name_for(worker, self.model, given)
        return self.form.body() if name == given else self.form.body(model=name)
