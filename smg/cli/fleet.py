"""smg-server fleet: the engines of a running gateway, as its control process sees them."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.cells import cell_len
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
# What most workers have is not worth a column.
_USUAL = {"role": "regular", "priority": "50"}


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
    console = Console()
    if not console.is_terminal:
        await _print_plain(client, asked.watch)
        return
    fleet = await client.call("list")
    if asked.watch is None:
        console.print(shown(fleet, time.time(), console.width))
        return
    with Live(shown(fleet, time.time(), console.width), console=console, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(asked.watch)
            live.update(shown(await client.call("list"), time.time(), console.width), refresh=True)


async def _print_plain(client: ControlClient, interval: float | None) -> None:
    """For pipes and files: no terminal has a width there."""
    print(plain(rows(await client.call("list"), time.time())), flush=True)
    while interval is not None:
        await asyncio.sleep(interval)
        print(plain(rows(await client.call("list"), time.time())), flush=True)


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


def rows(fleet: dict[str, Any], now: float) -> list[dict[str, str]]:
    """Each worker's cells by column, in order; ``now`` is the Unix time that ages are counted from.

    Roles and priorities are among them where any worker's differs from what is usual.
    """
    lacking = {
        name: f"no tokenizer for {model['id']}: {model['tokenizer_error']}"
        for model in fleet.get("models", ())
        if model["tokenizer_error"] and not model["tokenizer_dir"]
        for name in (model["id"], *model["aliases"])
    }
    found = [_cells(worker, now, lacking) for worker in fleet["workers"]]
    dropped = {name for name, usual in _USUAL.items() if all(cells[name] == usual for cells in found)}
    return [{name: cell for name, cell in cells.items() if name not in dropped} for cells in found]


def _cells(worker: dict[str, Any], now: float, lacking: Mapping[str, str]) -> dict[str, str]:
    """``lacking`` says of models why they cannot be served although their engines are ready."""
    engine = worker["engine"]
    reasons = [worker["reason"], *(lacking[name] for name in worker["models"] if name in lacking)]
    return {
        "url": worker["url"],
        # Version 7 ids begin with their time: the end tells workers apart.
        "id": worker["id"][-8:],
        "contract": worker["runtime_type"],
        "role": worker["worker_type"],
        "priority": str(worker["priority"]),
        "models": ", ".join(worker["models"]),
        "status": worker["status"],
        "breaker": worker["breaker"],
        "in flight": str(worker["in_flight"]),
        "tokens": str(worker["waiting_tokens"]),
        "KV use": "" if engine is None else f"{engine['kv_usage']:.0%}",
        "last probe": age(worker["last_probe"], now),
        "why": "; ".join(dict.fromkeys(reason for reason in reasons if reason)),
    }


def shown(fleet: dict[str, Any], now: float, width: int) -> Table | Text:
    """The fleet as a table, or as plain columns where that is wider than ``width`` cells: nothing is ever cut."""
    found = rows(fleet, now)
    widths = _widths(found)
    # A border and two blanks for each column, and the border at the end.
    if sum(widths.values()) + 3 * len(widths) + 1 > width:
        return Text(plain(found), overflow="fold")
    return table(found)


def table(found: Sequence[dict[str, str]]) -> Table:
    """``rows`` with borders and colours."""
    out = Table(*_widths(found), header_style="bold", expand=False)
    for cells in found:
        out.add_row(*(Text(cell, _style(name, cell)) for name, cell in cells.items()))
    return out


def plain(found: Sequence[dict[str, str]]) -> str:
    """``rows`` as lines of text, columns two blanks apart and ``-`` for nothing."""
    widths = _widths(found)
    lines = [{name: name for name in widths}, *found]
    return "\n".join("  ".join(_pad(line[name] or "-", widths[name]) for name in widths).rstrip() for line in lines)


def _widths(found: Sequence[dict[str, str]]) -> dict[str, int]:
    """Columns and their widths in cells of a terminal; the header alone where there is no worker."""
    columns = found[0] if found else ("url", "id", "status")
    return {name: max(cell_len(text) for text in (name, *(cells[name] for cells in found))) for name in columns}


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _style(column: str, cell: str) -> str:
    return {"status": _STYLES, "breaker": _BREAKER_STYLES}.get(column, {}).get(cell, "")


def age(moment: float | None, now: float) -> str:
    """How long ago ``moment`` was, empty for never."""
    if moment is None:
        return ""
    seconds = max(0.0, now - moment)
    return f"{seconds:.0f} s" if seconds < 120 else str(timedelta(seconds=int(seconds)))
