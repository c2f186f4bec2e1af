"""Numbers of a request as the contracts take them: checked, in range, with the neutral value for what is not set.

Proto3 scalars without presence default to zero, and servicers pass zeros through: a top_p, repetition_penalty or n of
zero breaks the generation. So adapters set every scalar (spec engine-contract 2.3).
"""

import math

from smg.core.backends import EngineRequest
from smg.core.errors import bad_request

INT32 = (-(2**31), 2**31 - 1)
UINT32_MAX = 2**32 - 1
# Anything beyond would be infinite on the wire.
_FLOAT32_MAX = 3.4028234e38
_UINT64_MAX = 2**64 - 1
# The smallest nucleus: still the best token alone, which is what a client asks for with a top_p of zero.
_SMALLEST_TOP_P = 1e-6


def number(name: str, value: float | None, neutral: float, least: float = -math.inf) -> float:
    """``value``, or ``neutral`` for None. Raises GatewayError (400) below ``least`` and for NaN or infinity."""
    if value is None:
        return neutral
    if not -_FLOAT32_MAX <= value <= _FLOAT32_MAX:
        raise bad_request("must be a finite number", name)
    if value < least:
        raise bad_request(f"must be at least {least:g}", name)
    return value


def unsigned(name: str, value: int) -> int:
    """``value`` when it is a uint32. Raises GatewayError (400)."""
    if not 0 <= value <= UINT32_MAX:
        raise bad_request(f"must be between 0 and {UINT32_MAX}", name)
    return value


def temperature(request: EngineRequest) -> float:
    """The temperature, 1 when not set; 0 is greedy. Raises GatewayError (400) below 0."""
    return number("temperature", request.sampling.temperature, 1.0, least=0.0)


def top_p(request: EngineRequest) -> float:
    """The nucleus, 1 when not set and never 0. Raises GatewayError (400) below 0."""
    return max(number("top_p", request.sampling.top_p, 1.0, least=0.0), _SMALLEST_TOP_P)


def top_k(request: EngineRequest, off: int) -> int:
    """The number of candidates; ``off`` is what the contract writes for all."""
    value = request.sampling.top_k
    if value is None or value <= 0:
        return off
    return min(value, INT32[1])


def min_p(request: EngineRequest) -> float:
    """The least probability relative to the best, 0 when not set. Raises GatewayError (400) below 0."""
    return number("min_p", request.sampling.min_p, 0.0, least=0.0)


def frequency_penalty(request: EngineRequest) -> float:
    """The penalty, 0 when not set. Raises GatewayError (400) for what is no number."""
    return number("frequency_penalty", request.sampling.frequency_penalty, 0.0)


def presence_penalty(request: EngineRequest) -> float:
    """The penalty, 0 when not set. Raises GatewayError (400) for what is no number."""
    return number("presence_penalty", request.sampling.presence_penalty, 0.0)


def repetition_penalty(request: EngineRequest) -> float:
    """The factor, 1 when not set. Raises GatewayError (400) unless it is above 0."""
    value = number("repetition_penalty", request.sampling.repetition_penalty, 1.0)
    if value <= 0.0:
        raise bad_request("must be greater than 0", "repetition_penalty")
    return value


def choices(request: EngineRequest) -> int:
    """The number of choices. Raises GatewayError (400) for none."""
    if request.n < 1:
        raise bad_request("must be at least 1", "n")
    return request.n


def stop_ids(request: EngineRequest) -> list[int]:
    """Ids that end a choice. Raises GatewayError (400) when one is no uint32."""
    return [unsigned("stop_token_ids", token) for token in request.stop_ids]


def min_tokens(request: EngineRequest) -> int:
    """The minimum of generated tokens. Raises GatewayError (400) when it is no uint32."""
    return unsigned("min_tokens", request.limits.min_tokens)


def max_tokens(request: EngineRequest) -> int | None:
    """The limit on generated tokens, None without one. Raises GatewayError (400) when it is no uint32."""
    limit = request.limits.max_tokens
    return None if limit is None else unsigned("max_tokens", limit)


def logit_bias(request: EngineRequest) -> dict[int, float]:
    """Biases by token id. Raises GatewayError (400) for what is no token id or no number."""
    last = request.vocab_size - 1 if request.vocab_size else INT32[1]
    for token in request.sampling.logit_bias:
        if not 0 <= token <= last:
            raise bad_request(f"a token id must be between 0 and {last}, not {token}", f"logit_bias.{token}")
    return {token: number(f"logit_bias.{token}", bias, 0.0) for token, bias in request.sampling.logit_bias.items()}


def seed32(request: EngineRequest) -> int | None:
    """The seed, clamped to an int32."""
    seed = request.sampling.seed
    return None if seed is None else min(max(seed, INT32[0]), INT32[1])


def seed64(request: EngineRequest) -> int | None:
    """The seed as a uint64: negative ones by two's complement, so that different seeds stay different."""
    seed = request.sampling.seed
    return None if seed is None else seed & _UINT64_MAX
