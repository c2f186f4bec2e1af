"""Signatures under what the gateway has written, so that it knows its own words again (spec agentic-apis 6.4).

All processes of a gateway have one key, and so has the gateway after a restart: it is made of ``--signing-key``, or
kept in the state directory. Gateways that share clients need the same ``--signing-key``.
"""

import base64
import hashlib
import hmac
import logging
import os
import tempfile
from pathlib import Path

from smg.config.settings import Settings

log = logging.getLogger("smg.security")

KEY_FILE = "signing.key"
_KEY_BYTES = 32
_VERSION = b"\x01"
# Who has no key of its own is known by its address only, which is not the same tomorrow.
_ADDRESS = "ip:"

# Keys by state directory, as they were when the gateway started: forked processes find them here.
_kept: dict[str, bytes] = {}


def keep_key(settings: Settings) -> None:
    """Read the key in the state directory, or make one. To be called before the gateway's processes are forked.

    Where that fails the key lasts as long as these processes do.
    """
    if settings.security.signing_key:
        return
    state_dir = settings.server.state_dir
    try:
        _kept[state_dir] = _on_disk(Path(state_dir).expanduser() / KEY_FILE)
    except OSError as error:
        log.warning("signatures will not outlast this gateway: no key can be kept", extra={"error": str(error)})
        _kept[state_dir] = os.urandom(_KEY_BYTES)


class Signer:
    """Signs texts, each for one tenant: another one's signature is as bad as none."""

    def __init__(self, settings: Settings) -> None:
        given = settings.security.signing_key
        if given:
            self._key = hashlib.sha256(b"smg signing key\0" + given.encode("utf-8", "surrogatepass")).digest()
        else:
            self._key = _kept.get(settings.server.state_dir) or os.urandom(_KEY_BYTES)

    def sign(self, tenant: str, text: str) -> str:
        """The signature under ``text``: base64 of a version and an HMAC-SHA256."""
        owner = b"anonymous" if tenant.startswith(_ADDRESS) else tenant.encode("utf-8", "surrogatepass")
        message = len(owner).to_bytes(4, "big") + owner + text.encode("utf-8", "surrogatepass")
        # Unlike hmac.digest, an object lets the GIL go for what is long.
        made = hmac.new(self._key, _VERSION, "sha256")
        made.update(message)
        return base64.b64encode(_VERSION + made.digest()).decode()

    def verify(self, tenant: str, text: str, signature: str) -> bool:
        """Whether ``signature`` is ours, under ``text`` and for ``tenant``."""
        own = self.sign(tenant, text).encode()
        return hmac.compare_digest(own, signature.encode("utf-8", "surrogatepass"))


def _on_disk(path: Path) -> bytes:
    """The key in the file ``path``, which is made, for its owner alone, if there is none that can be one."""
    found = path.read_bytes() if path.exists() else None
    if found is None or len(found) != _KEY_BYTES:
        _put(path, replace=found is not None)
        found = path.read_bytes()
    return found


def _put(path: Path, *, replace: bool) -> None:
    """Put a new key at ``path``, all at once; without ``replace`` only where nobody else just has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        if replace:
            os.replace(made, path)
            return
        try:
            os.link(made, path)
        except FileExistsError:
            return
        finally:
            os.unlink(made)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
