"""How the engines of each contract hand a computed prompt over (spec engine-contract 5.1 to 5.3).

Two ways: both engines get the request at once and meet in a room (``MEETING``), or the decode engine gets what the
prefill engine has returned (``KvRelay``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from smg.core import ids
from smg.core.backends import Bootstrap, EngineRequest, Leg
from smg.core.request import Limits
from smg.fleet.records import WorkerRecord
from smg.fleet.roles import meeting_point

# Contracts whose engines meet, and how many bits their room numbers have.
MEETING: Mapping[str, int] = {"sglang": 31, "tokenspeed": 63}
ENCODE_ROOM_BITS = 63

_SEQUENCE = 0
# Odd, so that multiplying permutes; its digits spread neighbours over the whole range.
_STRIDE = 0x5851F42D4C957F2D


class Sequences(Protocol):
    """The shared counters of the region."""

    @property
    def boot_id(self) -> int: ...

    def sequence_next(self, sequence: int) -> int: ...


class Rooms:
    """Room numbers: no two requests of one gateway in flight have the same, whichever process serves them.

    Numbers of other gateways with the same engines are as far off as chance makes them. Consecutive numbers differ in
    their lowest bits, by which engines spread requests over data-parallel ranks.
    """

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences
        self._start = sequences.boot_id * _STRIDE

    def turn(self) -> int:
        """The next of the numbers that all processes count together."""
        return self._sequences.sequence_next(_SEQUENCE)

    def next(self, bits: int) -> int:
        """A number from 1 to ``2 ** bits - 1``."""
        while True:
            room = (self.turn() * _STRIDE + self._start) % (1 << bits)
            # Unset and 0 are the same on the wire.
            if room:
                return room


def meeting(prefill: WorkerRecord, rooms: Rooms, encoders: Sequence[Bootstrap] = ()) -> tuple[Leg, Leg]:
    """What a prefill and a decode engine that meet are told; ``encoders`` concern the prefill engine only."""
    host, port = meeting_point(prefill)
    room = Bootstrap(host, port, rooms.next(MEETING[prefill.runtime]))
    return Leg("prefill", room, encoders=tuple(encoders)), Leg("decode", room)


class KvRelay:
    """One request's way over two vLLM engines. ``turn`` spreads requests over the ranks of the prefill engine,
    ``rank`` is the one that was chosen already."""

    def __init__(self, prefill: WorkerRecord, turn: int, rank: int | None = None) -> None:
        self._worker = prefill
        self._transfer = f"xfer-{ids.uuid7()}"
        connector = prefill.labels.get("kv_connector", "").casefold()
        self._mooncake = "mooncake" in connector
        self._nixl = "nixl" in connector
        self._ranks = _ranks(prefill)
        self.rank = rank
        if self.rank is None and self._mooncake and self._ranks > 1:
            # The decode engine has to be told which rank has the cache.
            self.rank = turn % self._ranks

    def ask(self, request: EngineRequest) -> EngineRequest:
        """The prefill engine's request: the prompt, and one token that nobody reads.

        It must not end before that token, since engines hand over only what ended by length.
        """
        params: dict[str, Any] = {}
        if self._nixl or self._mooncake:
            params = {"do_remote_decode": True, "do_remote_prefill": False}
        if self._mooncake:
            params["transfer_id"] = self._transfer
        return replace(
            request,
            limits=Limits(1),
            stop_ids=(),
            ignore_eos=True,
            n=1,
            logprobs=None,
            constraint=None,
            require_reasoning=False,
            dp_rank=self.rank,
            leg=Leg("prefill", kv_params=msgspec.json.encode(params) if params else None),
        )

    def answer(self, returned: bytes | None) -> Leg | None:
        """What the decode engine is told, given the prefill engine's own parameters as it sent them.

        None when there is nothing to tell: it then computes the prompt by itself.
        """
        if not self._mooncake:
            return Leg("decode", kv_params=returned) if returned else None
        host, port = meeting_point(self._worker)
        engine = self._worker.labels.get("kv_engine_id", "")
        if not engine:
            return Leg("decode", kv_address=(host, port))
        if self.rank is not None and self._ranks > 1:
            engine += f"_dp{self.rank}"
        params = {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "transfer_id": self._transfer,
            "remote_engine_id": engine,
            "remote_bootstrap_addr": f"http://{_bracketed(host)}:{port}",
        }
        return Leg("decode", kv_params=msgspec.json.encode(params))

    def describes(self, request: EngineRequest, leg: Leg, decode: WorkerRecord) -> bool:
        """Whether the worker ``decode``, told ``leg``, needs no pixels (spec engine-contract 5.2).

        Its connector has to bring the whole prompt but for the last token, which it computes itself and which must be
        text. Only servers that tell their block size are known to take media without pixels.
        """
        media = request.media
        if media is None or leg.kv_params is None or not (self._nixl or self._mooncake):
            return False
        last = max(offset + length for offset, length in (item.structural for item in media.items))
        return last < len(request.ids) and bool(decode.labels.get("block_size"))


def relayable(request: EngineRequest) -> str | None:
    """Why a decode engine has to compute the prompt of ``request`` by itself, None when it need not.

    The choices of one request cannot share what is handed over, and log probabilities of the prompt come only from who
    computes it.
    """
    if request.n > 1:
        return "n"
    if request.logprobs is not None and request.logprobs.prompt:
        return "prompt_logprobs"
    return None


def _ranks(worker: WorkerRecord) -> int:
    size = worker.labels.get("dp_size", "1")
    return int(size) if size.isdecimal() else 1


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
