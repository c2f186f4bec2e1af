"""Beside another package with message files of the same names the gateway says what is wrong (engine-contract 10.1)."""

import subprocess
import sys

OTHER = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name={name!r}, package="somebody.else", syntax="proto3")
file.message_type.add(name="Thing")
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
import smg.engines.table
"""


def imported_beside(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OTHER.format(name=name)], capture_output=True, text=True, timeout=60)


def test_a_second_common_proto_is_named():
    done = imported_beside("common.proto")
    assert done.returncode != 0
    assert "another package in this process has registered" in done.stderr.splitlines()[-1]


def test_any_other_file_is_none_of_our_business():
    done = imported_beside("uncommon.proto")
    assert (done.returncode, done.stderr) == (0, "")
