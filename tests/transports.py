"""The transport for tests that are not about one: the gateway's default, or what ``SMG_TEST_TRANSPORT`` names."""

import os

from smg.config import Settings
from smg.engines.transport.table import CHOICES

CHOSEN = os.environ.get("SMG_TEST_TRANSPORT") or Settings().fleet.engine_transport
if CHOSEN not in CHOICES:
    raise ValueError(f"SMG_TEST_TRANSPORT must be one of {', '.join(CHOICES)}, not {CHOSEN!r}")

NATIVE_TABLE = CHOSEN != "python"
