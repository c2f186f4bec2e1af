"""Certificates made for a test run."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = "IP:127.0.0.1,DNS:localhost"

_AUTHORITY = """
[ca]
default_ca = here
[here]
database = {directory}/index
serial = {directory}/serial
new_certs_dir = {directory}
default_md = sha256
policy = any
[any]
commonName = supplied
[names]
subjectAltName = {names}
"""


def self_signed(directory: Path, names: str = HERE) -> dict[str, str]:
    """Make a certificate for 127.0.0.1 and localhost, or others; returns the server settings that use it."""
    _need_openssl()
    files = {"tls_key_path": str(directory / "key.pem"), "tls_cert_path": str(directory / "cert.pem")}
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    outputs = ["-keyout", files["tls_key_path"], "-out", files["tls_cert_path"]]
    subprocess.run([*command.split(), "-addext", f"subjectAltName={names}", *outputs], check=True, capture_output=True)
    return files


def expired(directory: Path) -> dict[str, str]:
    """As ``self_signed``; the certificate was good for a day of 2020."""
    _need_openssl()
    files = {"tls_key_path": str(directory / "key.pem"), "tls_cert_path": str(directory / "cert.pem")}
    settings, request = directory / "authority.conf", directory / "request.pem"
    settings.write_text(_AUTHORITY.format(directory=directory, names=HERE))
    (directory / "index").touch()
    ask = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
    sign = "openssl ca -batch -selfsign -notext -create_serial -extensions names"
    times = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
    places = ["-keyfile", files["tls_key_path"], "-in", str(request), "-out", files["tls_cert_path"]]
    steps = (
        [*ask.split(), "-keyout", files["tls_key_path"], "-out", str(request)],
        [*sign.split(), *times, "-config", str(settings), *places],
    )
    for step in steps:
        subprocess.run(step, check=True, capture_output=True)
    return files


def _need_openssl() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
