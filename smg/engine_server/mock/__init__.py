"""A scriptable engine of any of the contracts, for tests and benchmarks (spec engine-contract 8)."""

from smg.engine_server.mock.engine import SERVICE, MockEngine
from smg.engine_server.mock.script import Fault, Script
from smg.engine_server.mock.servicer import Recorded
from smg.engine_server.mock.table import CONTRACTS
from smg.engine_server.mock.tokenizer import EOS, decode_ids, encode_text

__all__ = ["CONTRACTS", "EOS", "SERVICE", "Fault", "MockEngine", "Recorded", "Script", "decode_ids", "encode_text"]
