"""The standard health service, ``grpc.health.v1`` (spec engine-contract 2.7), for the server as a whole."""

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

CHECK = "/grpc.health.v1.Health/Check"
REQUEST: bytes = health_pb2.HealthCheckRequest().SerializeToString()


def serving(message: bytes) -> bool:
    """Decode a HealthCheckResponse: true for SERVING alone."""
    try:
        answer = health_pb2.HealthCheckResponse.FromString(message)
    except DecodeError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
