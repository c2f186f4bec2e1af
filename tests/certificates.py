"""Certificates made for a test run."""

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(directory: Path) -> dict[str, str]:
    """Make a certificate for 127.0.0.1 and localhost; returns the server settings that use it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    files = {"tls_key_path": str(directory / "key.pem"), "tls_cert_path": str(directory / "cert.pem")}
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    outputs = ["-keyout", files["tls_key_path"], "-out", files["tls_cert_path"]]
    subprocess.run([*command.split(), *names, *outputs], check=True, capture_output=True)
    return files
