"""Transports that carry engine contracts."""

import os

# gRPC's core writes lines of its own to stderr (every GOAWAY is one), past any log format; what matters of them reaches
# us as statuses. It reads this once, when grpc is first used.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
