"""Transports that carry engine contracts."""

import os

# gRPC's core writes lines of its own to stderr (every GOAWAY is one), past any log format; what matters of them reaches
# us as statuses. It reads this once, when grpc is first used.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# gRPC's event engine hands each message from thread to thread: without it a token costs a third less, and /health waits
# half as long beside 100 streams and long prompts (case PF-01). The thread that polls for grpc.aio does the work then,
# as it did before there was an event engine. Operators' own choice of experiments wins.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
