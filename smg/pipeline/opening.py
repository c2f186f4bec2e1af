"""Opens the choices of a generation: a row of the table and the parsers for each."""

from collections.abc import Callable

from smg.core.request import GenerationRequest
from smg.core.stream import SEAL, Decoder, Marker, RowSpec, StreamTable
from smg.parsing.reasoning.counting import TokenText
from smg.pipeline.choice import Choice
from smg.pipeline.plan import Plan
from smg.pipeline.scored import Rows, TextRows, TokenRows
from smg.pipeline.signing import Signing
from smg.pipeline.spelled import Spelled


def open_choices(
    table: StreamTable,
    plan: Plan,
    request: GenerationRequest,
    first: int,
    signing: Callable[[], Signing | None],
    *,
    keep_text: bool,
) -> list[Choice]:
    """Open ``request.n`` choices, numbered from ``first`` on; ``signing`` makes what signs the reasoning of one, and
    ``keep_text`` is as ``Choice`` has it."""
    choices: list[Choice] = []
    for index in range(first, first + request.n):
        chain = plan.reading.chain(request, index)
        token_id = plan.text.tokenizer.token_id
        markers: tuple[Marker, ...] = ()
        tokens: dict[str, int] = {}
        if chain.markers:
            sealed = chain.seals.texts
            markers = tuple(Marker(marker, token_id(marker), marker in sealed) for marker in chain.markers)
            tokens = {marker.text: marker.token for marker in markers if marker.sealed and marker.token is not None}
        spec = RowSpec(
            choice=index,
            skip_special_tokens=request.skip_special_tokens,
            end_ids=plan.stops.end_ids,
            eos_ids=plan.stops.eos,
            stop_strings=request.stop.strings,
            stop_visible=request.stop.visible,
            min_tokens=plan.limits.min_tokens,
            markers=markers,
            continues=plan.prepared.continues,
        )
        choices.append(
            Choice(
                table,
                spec,
                plan.decoder,
                chain,
                plan.stops,
                _rows(plan, request, spec),
                None if chain.plain else plan.reading.counter(token_id, _texts(plan.decoder, spec)),
                Spelled(tokens, plan.reading.spelled) if tokens else None,
                silent=request.limits.max_tokens == 0,
                keep_text=keep_text,
                signing=signing(),
            )
        )
    return choices


def _texts(decoder: Decoder, spec: RowSpec) -> TokenText:
    """What each token adds to the text of a row of ``spec``."""
    shown = frozenset(marker.token for marker in spec.markers)
    sealed = frozenset(marker.token for marker in spec.markers if marker.sealed)

    def text_of(token: int) -> bytes:
        if token in spec.end_ids and not spec.stop_visible:
            return b""
        if spec.skip_special_tokens and token not in shown and decoder.is_special(token):
            return b""
        text = decoder.token_bytes(token)
        return SEAL.encode() + text if token in sealed else text

    return text_of


def _rows(plan: Plan, request: GenerationRequest, spec: RowSpec) -> Rows | None:
    if request.logprobs is None:
        return None
    return TokenRows() if request.return_ids else TextRows(spec, plan.decoder)
