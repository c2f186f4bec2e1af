"""What must not pass because others might read it in another way (RFC 9112 3.2, 5, 6, 7.1).

A proxy in front that sees other requests in the same bytes can be made to let pass what it would refuse.
"""

import re
from typing import Any

from sanic.exceptions import BadRequest

# The first line, then names that are tokens (RFC 9110 5.6.2) with their colon right behind and values without control
# characters.
_HEAD = re.compile(
    rb"[!-~]+ [!-~]+ HTTP/1\.[01](?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*)*", re.ASCII
)
# A name or an address, and perhaps a port (RFC 9110 4.2, 7.2).
_HOST = re.compile(r"(?:\[[0-9A-Za-z\-._~%:]+\]|[0-9A-Za-z\-._~!$&'()*+,;=%]+)(?::[0-9]*)?")
_LENGTH = re.compile(r"[0-9]+")
# The end of a head or of a chunk, then the line of the next one.
_CHUNK_LINE = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_BLANK = " \t"


def check_head(head: bytes, headers: Any, version: str) -> None:
    """Check a whole head; ``headers`` are Sanic's of it, which has refused a second word about the body's length.

    Raises:
        BadRequest: it is malformed or ambiguous.
    """
    if _HEAD.fullmatch(head) is None:
        raise BadRequest("the request's head is malformed")
    _check_host(headers.getall("host", ()), version)
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if version == "1.0":
            raise BadRequest("HTTP/1.0 has no Transfer-Encoding")
        if coding.strip(_BLANK).lower() != "chunked":
            raise BadRequest("the request's Transfer-Encoding is not just chunked")
        # What Sanic compares it with.
        headers["transfer-encoding"] = "chunked"
    length = headers.get("content-length")
    if length is not None and _LENGTH.fullmatch(length.strip(_BLANK)) is None:
        raise BadRequest("the request's Content-Length is malformed")


def _check_host(hosts: list[str], version: str) -> None:
    if len(hosts) > 1:
        raise BadRequest("the request has more than one Host header")
    host = hosts[0].strip(_BLANK) if hosts else ""
    if not host:
        if version != "1.0":
            raise BadRequest("the request has no Host header")
    elif _HOST.fullmatch(host) is None:
        raise BadRequest("the request's Host header is malformed")


def check_chunk_line(buffer: bytearray) -> None:
    """Check what ``buffer`` begins with where a chunk does.

    Raises:
        BadRequest: it is not the line of a chunk and what has to be before that.
    """
    if _CHUNK_LINE.match(buffer) is None:
        raise BadRequest("the body is not properly chunked")
