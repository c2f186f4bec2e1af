"""The contracts the mock speaks, by the names the gateway's drivers have."""

from collections.abc import Callable, Mapping

from smg.engine_server.mock.contract import Contract
from smg.engine_server.mock.contracts.mlx import Mlx
from smg.engine_server.mock.contracts.sglang import Sglang
from smg.engine_server.mock.contracts.tokenspeed import TokenSpeed
from smg.engine_server.mock.contracts.trtllm import Trtllm
from smg.engine_server.mock.contracts.vllm import Vllm

CONTRACTS: Mapping[str, Callable[[], Contract]] = {
    "vllm": Vllm,
    "sglang": Sglang,
    "trtllm": Trtllm,
    "tokenspeed": TokenSpeed,
    "mlx": Mlx,
}
