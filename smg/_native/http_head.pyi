"""The head of an ordinary HTTP/1.1 request: one pass over its bytes checks it and takes it apart."""

def ordinary_head(buffer: bytearray, limit: int) -> tuple[bytes, str, bytes, list[tuple[str, str]], int, bool] | None:
    """What ``buffer`` begins with: (head, method, URL, fields, length, keep_alive); None when it is no ordinary head,
    or not there as a whole within ``limit`` bytes.

    ``head`` is without the empty line behind it; names of fields are in small letters, in their order. ``length`` is
    that of the body, -1 when the head tells of none; ``keep_alive``: the connection may go on afterwards. Ordinary is a
    request of HTTP/1.1 with one Host that is a name or an IPv4 address, printable ASCII everywhere, at most one
    Content-Length, and no Transfer-Encoding, Expect or Upgrade (RFC 9112).
    """
