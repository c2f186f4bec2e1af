"""smg-server fleet: the engines of a running gateway, as its control process sees them."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from smg.config.settings import ServerSettings
from smg.control.client import ControlClient
from smg.core.errors import GatewayError

_SOCKETS = "run/*/control.sock"
_STYLES = {"ready": "green", "pending": "yellow", "draining": "cyan", "not_ready": "red", "failed": "bold red"}
_BREAKER_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}
_COLUMNS = (
    "id",
    "url",
    "contract",
    "models",
    "status",
    "breaker",
    "in flight",
    "tokens",
    "KV use",
    "last probe",
    "why",
)


class NoGateway(Exception):
    """There is no gateway to ask, or more than one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``smg-server fleet``. Exit status: 0, or 1 when no gateway could be asked."""
    asked = parser().parse_args(arguments)
    try:
        asyncio.run(_run(asked))
    except (NoGateway, GatewayError) as error:
        print(f"smg-server fleet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    out = argparse.ArgumentParser(prog="smg-server fleet", description="Show the engines of a running gateway.")
    out.add_argument(
        "--state-dir",
        default=os.environ.get("SMG_STATE_DIR") or ServerSettings().state_dir,
        help="the gateway's --state-dir",
    )
    out.add_argument("--gateway", metavar="ID", help="which one, where several share a state directory")
    out.add_argument("--json", action="store_true", help="print JSON; with --watch one line each time")
    out.add_argument(
        "--watch", nargs="?", type=float, const=1.0, metavar="SECONDS", help="show it again every so many seconds (1)"
    )
    return out


async def _run(asked: argparse.Namespace) -> None:
    client = await connect(asked.state_dir, asked.gateway)
    if asked.json:
        await _print_json(client, asked.watch)
        return
    fleet = await client.call("list")
    if asked.watch is None:
        Console().print(table(fleet, time.time()))
        return
    with Live(table(fleet, time.time()), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(asked.watch)
            live.update(table(await client.call("list"), time.time()), refresh=True)


async def _print_json(client: ControlClient, interval: float | None) -> None:
    if interval is None:
        print(json.dumps(await client.call("list"), indent=2))
        return
    while True:
        print(json.dumps(await client.call("list")), flush=True)
        await asyncio.sleep(interval)


async def connect(state_dir: str, gateway: str | None) -> ControlClient:
    """Find the control process of the gateway that runs with ``state_dir``.

    Raises:
        NoGateway: none answers, or several do and ``gateway`` names none of them.
    """
    names = _names(state_dir)
    found = {name: client for name in names if (client := await _alive(state_dir, name)) is not None}
    if gateway is not None:
        found = {name: client for name, client in found.items() if name == gateway}
        if not found:
            raise NoGateway(f"no gateway {gateway} answers in {state_dir}")
    if not found:
        raise NoGateway(f"no gateway answers in {state_dir}")
    if len(found) > 1:
        raise NoGateway(f"several gateways share {state_dir}; choose one with --gateway: {', '.join(found)}")
    (client,) = found.values()
    return client


def _names(state_dir: str) -> list[str]:
    """Ids of the gateways that have, or have left, a socket there."""
    return sorted(path.parent.name for path in Path(state_dir).expanduser().glob(_SOCKETS))


async def _alive(state_dir: str, name: str) -> ControlClient | None:
    """The client of one gateway, None when it has ended and only left its socket."""
    try:
        client = ControlClient(state_dir, int(name, 16))
        await client.call("ping")
    except (ValueError, GatewayError):
        return None
    return client


def table(fleet: dict[str, Any], now: float) -> Table:
    """The fleet as a table; ``now`` is the Unix time that ages are counted from."""
    out = Table(*_COLUMNS, header_style="bold", expand=False)
    for worker in fleet["workers"]:
        engine = worker["engine"]
        out.add_row(
            # Version 7 ids begin with their time: the end tells workers apart.
            worker["id"][-8:],
            worker["url"],
            worker["runtime_type"],
            ", ".join(worker["models"]),
            Text(worker["status"], _STYLES.get(worker["status"], "")),
            Text(worker["breaker"], _BREAKER_STYLES.get(worker["breaker"], "")),
            str(worker["in_flight"]),
            str(worker["waiting_tokens"]),
            "" if engine is None else f"{engine['kv_usage']:.0%}",
            age(worker["last_probe"], now),
            worker["reason"],
        )
    return out


def age(moment: float | None, now: float) -> str:
    """How long ago ``moment`` was, empty for never."""
    if moment is None:
        return ""
    seconds = max(0.0, now - moment)
    return f"{seconds:.0f} s" if seconds < 120 else str(timedelta(seconds=int(seconds)))
