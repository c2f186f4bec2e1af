"""Waits beside a starting smg-server until it is ready, then says how to talk to it and how long it took.

Run by scripts/serve. Ends without a word when the server ends, which says itself what went wrong.
"""

import argparse
import http.client
import json
import os
import shlex
import ssl
import sys
import time
from collections.abc import Sequence

POLL_SECONDS = 0.25
REPORT_SECONDS = 10.0
DEFAULT_MODEL = "smollm2-135m-instruct"


class Target:
    """Where the server listens, read from the flags it was given (the last one wins, as in smg-server)."""

    def __init__(self, flags: Sequence[str]) -> None:
        found = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        found.add_argument("--host", default="127.0.0.1")
        found.add_argument("--port", type=int, default=30000)
        found.add_argument("--tls-cert-path", default=os.environ.get("SMG_TLS_CERT_PATH"))
        found.add_argument("--api-key", default=None)
        given, _ = found.parse_known_args(flags)
        self.key = given.api_key or next(iter(shlex.split(os.environ.get("SMG_API_KEY", ""))), None)
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(given.host, given.host)
        self.port = given.port
        self.tls = given.tls_cert_path is not None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """(status, body) of a GET; status 0 while nobody listens."""
        if self.tls:
            # It is the machine's own server: its certificate need not name the loopback address.
            context = ssl._create_unverified_context()
            link: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.host, self.port, timeout=5, context=context
            )
        else:
            link = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            link.request("GET", path, headers={"authorization": f"Bearer {self.key}"} if self.key else {})
            answer = link.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            link.close()


def curl_line(target: Target) -> str:
    """A command that streams a chat completion from the first model; a key is left for the reader to fill in."""
    status, listed = target.get("/v1/models")
    model = first_model(listed) if status == 200 else DEFAULT_MODEL
    question = {"role": "user", "content": "Tell me a short story about a cat."}
    body = {"model": model, "messages": [question], "max_tokens": 100, "stream": True}
    words = ["curl", "-N"] + (["-k"] if target.tls else []) + [f"{target.url}/v1/chat/completions"]
    line = " ".join(words) + " -H 'content-type: application/json'"
    if target.key or status == 401:
        line += ' -H "authorization: Bearer $SMG_API_KEY"'
    return f"{line} \\\n    -d {shlex.quote(json.dumps(body))}"


def first_model(listed: bytes) -> str:
    """The first id of a model list, or the embedded engine's model when there is none."""
    try:
        return str(json.loads(listed)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return DEFAULT_MODEL


def running(pid: int) -> bool:
    """Whether the process still runs; one that has ended and is not yet collected does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def reason(body: bytes) -> str:
    """What the readiness answer says is missing, or the empty string."""
    try:
        answer = json.loads(body)
        return str(answer.get("reason", "")) if isinstance(answer, dict) else ""
    except ValueError:
        return ""


def main() -> int:
    own = argparse.ArgumentParser(description=__doc__)
    own.add_argument("--pid", type=int, required=True)
    own.add_argument("--set-up-ms", type=int, required=True)
    own.add_argument("flags", nargs="*")
    given = own.parse_args()
    target = Target(given.flags)
    if target.port == 0:
        return 0  # smg-server tells the port it picked; nothing outside can know it
    if target.get("/liveness")[0]:
        print(f"error: something else already answers at {target.url}", file=sys.stderr)
        return 1
    began = reported = time.monotonic()
    while running(given.pid):
        status, body = target.get("/readiness")
        now = time.monotonic()
        if status == 200:
            print(
                f"\nsmg-server is ready: {target.url}\n"
                f"set-up took {given.set_up_ms / 1000:.1f} s, ready after {now - began:.1f} s more. Try:\n\n"
                f"{curl_line(target)}\n",
                flush=True,
            )
            return 0
        if now - reported >= REPORT_SECONDS:
            reported = now
            print(f"    … not ready after {now - began:.0f} s: {reason(body) or 'nobody answers yet'}", file=sys.stderr)
        time.sleep(POLL_SECONDS)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
