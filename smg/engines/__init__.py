"""Engine drivers: one folder per contract, one table row each."""

try:
    import smg_grpc_proto.generated.common_pb2  # noqa: F401
except TypeError as error:
    # Files of messages have bare names in the one pool of a process, and there can be no second of the same name.
    raise ImportError(
        "another package in this process has registered a file of Protocol Buffers messages called common.proto, as "
        "the engine contract does; run the gateway in a process without it"
    ) from error
