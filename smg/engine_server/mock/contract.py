"""What one engine contract provides to the mock: its messages and its quirks (spec engine-contract 2.1 to 2.3).

The base has what most contracts have in common. Pace, faults and records are the servicer's and the same for all.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from google.protobuf.descriptor import ServiceDescriptor
from smg_grpc_proto.generated import common_pb2

from smg.engine_server import bundle
from smg.engine_server.mock import logprobs
from smg.engine_server.mock.ask import Ask, Part, Refused, Report
from smg.engine_server.mock.transfer import Meeting


class Contract(ABC):
    """One contract. ``pb`` is the module of generated messages, ``service`` the descriptor of its service.

    ``complete_ids`` tells what the Complete of a stream repeats: the last delta, all ids, or none; ``delta_counts``
    that its counts of completion tokens are those of the message alone.
    """

    pb: ClassVar[Any]
    service: ClassVar[ServiceDescriptor]
    name: ClassVar[str]
    more_services: ClassVar[Sequence[ServiceDescriptor]] = ()
    complete_ids: ClassVar[Literal["delta", "all", "none"]] = "delta"
    delta_counts: ClassVar[bool] = False
    bundle_chunk: ClassVar[int] = bundle.CHUNK_BYTES

    # -- Generate

    @abstractmethod
    def ask(self, request: Any) -> Ask:
        """Read a GenerateRequest."""

    @abstractmethod
    def check(self, request: Any) -> None:
        """Raise Refused for sampling scalars that a client forgot to set, and what else the contract cannot do."""

    @abstractmethod
    def chunk(self, part: Part) -> Any:
        """Build a GenerateResponse with a chunk."""

    @abstractmethod
    def complete(self, part: Part) -> Any:
        """Build a GenerateResponse with a Complete."""

    def one_by_one(self, ask: Ask) -> bool:
        """Whether the choices of this request run one after another."""
        return False

    def meeting(self, request: Any) -> Meeting | None:
        """Where the cache of this request is handed over, None when it is no pair's."""
        return None

    def embeddings(self, request: Any) -> Sequence[tuple[Meeting, bytes]]:
        """Where the embeddings of the request's media come from, each with its item's hash.

        Raises:
            Refused: an item has neither tensor nor embeddings.
        """
        return ()

    def tensors(self, request: Any) -> Iterable[Any]:
        """The TensorData of the request's media, in contracts where they may name files of shared memory."""
        return ()

    def kv_params(self, request: Any, host: str, port: int, engine: str) -> str:
        """What a prefill engine at ``host`` returns for the decode engine, in contracts that relay it."""
        return ""

    # -- Abort

    @abstractmethod
    def abort_ids(self, request: Any) -> Sequence[str]:
        """The ids an AbortRequest names."""

    def hits(self, named: str, running: str) -> bool:
        """Whether aborting ``named`` ends the request ``running``."""
        return named == running

    def aborted(self, found: bool) -> Any:
        return self.pb.AbortResponse(success=found)

    # -- facts

    def health(self, healthy: bool) -> Any:
        return self.pb.HealthCheckResponse(healthy=healthy, message="OK" if healthy else "scripted as unhealthy")

    @abstractmethod
    def model_info(self, report: Report) -> Any: ...

    @abstractmethod
    def server_info(self, report: Report) -> Any: ...

    def load(self, request: Any, report: Report) -> Any:
        """The SchedulerLoad of the only rank, of contracts that have GetLoads."""
        return self.pb.SchedulerLoad(
            num_running_reqs=report.running,
            num_waiting_reqs=report.waiting,
            num_total_reqs=report.running + report.waiting,
            num_used_tokens=report.used_tokens,
            max_total_num_tokens=report.context_length,
            token_usage=report.usage,
            max_running_requests=256,
        )

    def start_profile(self, request: Any) -> Any:
        """Answer StartProfile. Raises Refused for options the contract does not take."""
        return common_pb2.ProfileResponse(success=True, message="profiling")

    # -- for the contracts whose log probabilities have the common shape

    def candidates(self, token: int, count: int) -> list[tuple[int, float]]:
        return logprobs.best_first(token, count)

    def output_logprobs(self, part: Part) -> Any:
        """OutputLogProbs of the part's ids, None when they are not wanted."""
        count = part.ask.logprobs
        if count is None:
            return None
        return logprobs.output(self.pb, part.ids, [self.candidates(token, count) for token in part.ids])

    def input_logprobs(self, part: Part) -> Any:
        """InputLogProbs when this part brings them, else None."""
        count = part.ask.prompt_logprobs
        if count is None or part.prompt is None:
            return None
        return logprobs.prompt(self.pb, part.prompt, [self.candidates(token, count) for token in part.prompt])


def positive(message: Any, *fields: str) -> None:
    """Raise Refused for scalars that are zero: they were not set (an unset one with presence is fine)."""
    for field in fields:
        descriptor = message.DESCRIPTOR.fields_by_name[field]
        if descriptor.has_presence and not message.HasField(field):
            continue
        if not getattr(message, field):
            raise Refused(f"{field} must be greater than 0")


def optional(message: Any, field: str) -> Any:
    """The field's value, None when it is not set."""
    return getattr(message, field) if message.HasField(field) else None


def matched(part: Part) -> dict[str, Any]:
    """The ``matched_stop`` oneof most contracts have."""
    if part.matched is None:
        return {}
    return {"matched_stop_str" if isinstance(part.matched, str) else "matched_token_id": part.matched}
