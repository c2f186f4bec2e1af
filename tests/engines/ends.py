"""All that a peer may say on a stream, and how the call ends (``test_peers``)."""

import hpack

from tests import h2_peer as h2


def pieces(stream, block, size):
    """Trailers in several frames of up to ``size`` bytes."""
    cut = [block[at : at + size] for at in range(0, len(block), size)]
    last = len(cut) - 1
    return h2.frame(h2.HEADERS, h2.END_STREAM, stream, cut[0]) + b"".join(
        h2.frame(h2.CONTINUATION, h2.END_HEADERS if at == last else 0, stream, cut[at]) for at in range(1, len(cut))
    )


# What a peer says on a stream, what of it is delivered, and the status. GRPCIO has what grpcio may make of it instead.
GRPCIO = {
    # It does not know padding.
    "padding": ([], "INTERNAL"),
    "padded-headers-with-a-priority": ([], "INTERNAL"),
    # It takes the first headers for the answer's.
    "informational": ([], "UNKNOWN"),
    "trailers-in-capitals": ([], "INTERNAL"),
    # It drops what it has read when an error follows at once.
    "messages-and-a-reset": ([], "INTERNAL"),
    "no-trailers": ([], "UNKNOWN"),
    # It does not notice.
    "cut-message": ([], "OK"),
    # It only looks for a status where the specification has one.
    "early-status": ([], "UNKNOWN"),
    "early-status-and-messages": ([], "UNKNOWN"),
}
ENDS = {
    "ok": (lambda s: h2.answer(s, b"a"), [b"a"], "OK"),
    "no-messages": (lambda s: h2.answer(s), [], "OK"),
    "empty-messages": (lambda s: h2.answer(s, b"", b""), [b"", b""], "OK"),
    "padding": (
        lambda s: (
            h2.headers(s) + h2.frame(h2.DATA, h2.PADDED, s, b"\x03" + h2.message(b"padded") + bytes(3)) + h2.trailers(s)
        ),
        [b"padded"],
        "OK",
    ),
    "empty-frames": (
        lambda s: h2.headers(s) + h2.data(s, b"") * 3 + h2.data(s, h2.message(b"x"), size=1) + h2.trailers(s),
        [b"x"],
        "OK",
    ),
    "cut-in-every-place": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"long one") * 3, size=3) + h2.trailers(s),
        [b"long one"] * 3,
        "OK",
    ),
    "informational": (
        lambda s: h2.headers(s, ((":status", "103"), ("link", "</a>"))) + h2.answer(s, b"a"),
        [b"a"],
        "OK",
    ),
    "content-type-with-a-codec": (
        lambda s: (
            h2.headers(s, ((":status", "200"), ("content-type", "application/grpc+proto")))
            + h2.data(s, h2.message(b"a"))
            + h2.trailers(s)
        ),
        [b"a"],
        "OK",
    ),
    "compressed": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"\x1f\x8b", flag=1)) + h2.trailers(s),
        [],
        "INTERNAL",
    ),
    "binary-trailers": (
        lambda s: (
            h2.headers(s)
            + h2.trailers(s, 5, ("grpc-status-details-bin", "CAUSBGhlcmU"), ("x-bin", "AAEC/w=="), ("x-empty", ""))
        ),
        [],
        "NOT_FOUND",
    ),
    "trailers-in-pieces": (
        lambda s: h2.headers(s) + pieces(s, h2.block((("x-long", "x" * 9000), ("grpc-status", "5"))), 3000),
        [],
        "NOT_FOUND",
    ),
    "trailers-in-single-bytes": (
        lambda s: h2.headers(s) + pieces(s, h2.block((("grpc-status", "5"),)), 1),
        [],
        "NOT_FOUND",
    ),
    "padded-headers-with-a-priority": (
        lambda s: (
            h2.frame(
                h2.HEADERS,
                h2.END_HEADERS | h2.PADDED | h2.WITH_PRIORITY,
                s,
                b"\x03" + bytes(4) + b"\x0f" + h2.block(h2.ANSWER) + bytes(3),
            )
            + h2.trailers(s)
        ),
        [],
        "OK",
    ),
    "table-sizes": (
        # Back to nothing and to 4096 bytes, as encoders do after a change of SETTINGS.
        lambda s: (
            h2.frame(h2.HEADERS, h2.END_HEADERS, s, b"\x20\x3f\xe1\x1f" + h2.block(h2.ANSWER))
            + h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, s, b"\x20" + h2.block(h2.OK))
        ),
        [],
        "OK",
    ),
    "huffman": (
        lambda s: (
            h2.frame(h2.HEADERS, h2.END_HEADERS, s, h2.block(h2.ANSWER, hpack.Encoder()))
            + h2.frame(
                h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, s, h2.block((("grpc-status", "5"),), hpack.Encoder())
            )
        ),
        [],
        "NOT_FOUND",
    ),
    "trailers-in-capitals": (
        # Malformed (RFC 9113, 8.2).
        lambda s: h2.headers(s) + h2.headers(s, (("Grpc-Status", "5"),), end=True),
        [],
        "UNKNOWN",
    ),
    "status-5": (lambda s: h2.headers(s) + h2.trailers(s, 5, ("grpc-message", "not%20here")), [], "NOT_FOUND"),
    "status-without-meaning": (lambda s: h2.headers(s) + h2.trailers(s, 99), [], "UNKNOWN"),
    "messages-and-a-status": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"a")) + h2.trailers(s, 13),
        [b"a"],
        "INTERNAL",
    ),
    "reset-no-error": (lambda s: h2.headers(s) + h2.reset(s, 0), [], "INTERNAL"),
    "reset-cancel": (lambda s: h2.headers(s) + h2.reset(s, 8), [], "CANCELLED"),
    "reset-calm": (lambda s: h2.headers(s) + h2.reset(s, 11), [], "RESOURCE_EXHAUSTED"),
    "reset-security": (lambda s: h2.headers(s) + h2.reset(s, 12), [], "PERMISSION_DENIED"),
    "reset-internal": (lambda s: h2.headers(s) + h2.reset(s, 2), [], "INTERNAL"),
    "messages-and-a-reset": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"a")) + h2.reset(s, 2),
        [b"a"],
        "INTERNAL",
    ),
    "cut-message": (lambda s: h2.headers(s) + h2.data(s, h2.message(b"cut")[:6]) + h2.trailers(s), [], "INTERNAL"),
    "no-trailers": (lambda s: h2.headers(s) + h2.data(s, h2.message(b"a"), end=True), [b"a"], "UNKNOWN"),
    "early-status": (
        # What proxies over Go's HTTP library make of an answer of trailers only.
        lambda s: (
            h2.headers(s, (*h2.ANSWER, ("grpc-status", "8"), ("grpc-message", "full"))) + h2.data(s, b"", end=True)
        ),
        [],
        "RESOURCE_EXHAUSTED",
    ),
    "early-status-and-trailers": (
        lambda s: h2.headers(s, (*h2.ANSWER, ("grpc-status", "8"))) + h2.trailers(s, 5),
        [],
        "NOT_FOUND",
    ),
    "early-status-and-messages": (
        lambda s: (
            h2.headers(s, (*h2.ANSWER, ("grpc-status", "0"))) + h2.data(s, h2.message(b"a")) + h2.data(s, b"", end=True)
        ),
        [b"a"],
        "UNKNOWN",
    ),
    "early-status-and-a-reset": (
        lambda s: h2.headers(s, (*h2.ANSWER, ("grpc-status", "0"))) + h2.reset(s, 2),
        [],
        "INTERNAL",
    ),
    "http-413": (
        # nginx, for a request above its client_max_body_size.
        lambda s: h2.headers(s, ((":status", "413"), ("content-type", "text/html"))) + h2.data(s, b"<html>", end=True),
        [],
        "UNKNOWN",
    ),
    "http-503": (lambda s: h2.headers(s, ((":status", "503"),), end=True), [], "UNAVAILABLE"),
    "http-404": (lambda s: h2.headers(s, ((":status", "404"),), end=True), [], "UNIMPLEMENTED"),
    "http-401": (lambda s: h2.headers(s, ((":status", "401"),), end=True), [], "UNAUTHENTICATED"),
    "http-500": (lambda s: h2.headers(s, ((":status", "500"),), end=True), [], "UNKNOWN"),
}
