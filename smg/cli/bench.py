"""``smg-bench``: measure parts of the gateway (``micro``, ``index``, ``routing``, ``vision``) or all (``load``)."""

import argparse
import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from smg._version import __version__

MICRO = Path(__file__).resolve().parents[2] / "benchmarks" / "micro"

# Of routing: by trace, policy and name.
_MICRO_NEEDS = ("pytest", "pytest_benchmark")
Figures = Mapping[str, Mapping[str, Mapping[str, float]]]


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    out = argparse.ArgumentParser(prog="smg-bench", description="Benchmarks of smg-server.")
    out.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = out.add_subparsers(dest="command", required=True)

    micro = commands.add_parser("micro", help="time the inner parts, one by one (from a checkout)")
    micro.add_argument("--json", action="store_true", help="print one JSON object")
    micro.add_argument("-k", metavar="EXPRESSION", help="only the benchmarks that match, as pytest's -k")

    index = commands.add_parser("index", help="measure the prefix index: the workloads W1 to W6")
    index.add_argument("--json", action="store_true", help="print one JSON object")

    routing = commands.add_parser("routing", help="compare routing policies on simulated engines")
    routing.add_argument("--json", action="store_true", help="print one JSON object")
    routing.add_argument(
        "--requests",
        type=_positive,
        default=1600,
        help="length of a trace; half for long contexts (default: %(default)s)",
    )
    routing.add_argument(
        "--seeds", type=int, nargs="+", metavar="N", help="seeds of the traces (default: 101 to 105); medians are told"
    )
    routing.add_argument(
        "--figures", type=Path, metavar="FILE.json", help="figures of an earlier run with --json, instead of a new run"
    )
    routing.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.svg|DIR",
        help="draw TTFT, hit ratio and load of the policies: all traces into one file, or a file for each into a "
        "directory (needs matplotlib)",
    )
    vision = commands.add_parser("vision", help="images per second, beside other processors (from a checkout)")
    vision.add_argument("--json", action="store_true", help="print one JSON object")

    load = commands.add_parser("load", help="send chat completions to an OpenAI-compatible server")
    load.add_argument("--url", default="http://127.0.0.1:30000", help="server, without /v1 (default: %(default)s)")
    load.add_argument("--model", default="", help="model name; default: the first one the server lists")
    load.add_argument("--api-key", default=os.environ.get("SMG_API_KEY", ""), help="key to send; default: $SMG_API_KEY")
    load.add_argument("--concurrency", type=_positive, default=8, help="requests at a time (default: %(default)s)")
    load.add_argument("--requests", type=_positive, default=64, help="requests that count (default: %(default)s)")
    load.add_argument("--warmup", type=_count, default=0, help="requests sent before them (default: %(default)s)")
    load.add_argument(
        "--prompt-tokens", type=_positive, default=64, help="approximate prompt length (default: %(default)s)"
    )
    load.add_argument("--max-tokens", type=_positive, default=64, help="longest answer (default: %(default)s)")
    load.add_argument("--temperature", type=float, default=0.0, help="sampling temperature (default: %(default)s)")
    load.add_argument("--ignore-eos", action="store_true", help="always generate --max-tokens (an extension)")
    load.add_argument(
        "--stream", action=argparse.BooleanOptionalAction, default=True, help="stream the answers (default: yes)"
    )
    load.add_argument("--timeout", type=float, default=600.0, help="seconds one request may take")
    load.add_argument("--pid", type=_positive, help="also measure this process and all it started (same machine)")
    load.add_argument("--json", action="store_true", help="print one JSON object")
    return out


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


class _Stats(msgspec.Struct):
    """Of pytest-benchmark's report, what we print; times in seconds."""

    median: float
    mean: float
    stddev: float
    rounds: int


class _Benchmark(msgspec.Struct):
    name: str
    stats: _Stats
    extra_info: dict[str, float] = msgspec.field(default_factory=dict)


class _Benchmarks(msgspec.Struct):
    benchmarks: list[_Benchmark]


def micro(json: bool, match: str | None, folder: Path = MICRO) -> int:
    """Run the benchmarks of ``folder`` by pytest-benchmark; returns the exit status."""
    if not folder.is_dir():
        print(f"smg-bench: {folder} does not exist; the micro benchmarks need a checkout", file=sys.stderr)
        return 2
    if lacking := [name for name in _MICRO_NEEDS if importlib.util.find_spec(name) is None]:
        install = "install smg-server with the extra 'bench' (pip install -e '.[bench]')"
        print(f"smg-bench: the micro benchmarks need {' and '.join(lacking)}; {install}", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "pytest", str(folder), "--benchmark-only", "--tb=short"]
    command += ["-k", match] if match else []
    # Inside a run that is shared out over processes pytest-benchmark would measure nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    if not json:
        columns = "--benchmark-columns=median,mean,stddev,rounds"
        return subprocess.run([*command, columns], cwd=folder.parents[1], env=environment, check=False).returncode
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "report.json"
        done = subprocess.run(
            [*command, "-q", f"--benchmark-json={out}"],
            cwd=folder.parents[1],
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr)
            return done.returncode
        report = msgspec.json.decode(out.read_bytes(), type=_Benchmarks)
    print(msgspec.json.encode({item.name: _figures(item) for item in report.benchmarks}).decode())
    return 0


def _figures(item: _Benchmark) -> dict[str, float]:
    """Microseconds per call, and per unit where the benchmark says how many units a call has (``per_token``: 512)."""
    out = {"median_us": item.stats.median * 1e6, "mean_us": item.stats.mean * 1e6, "stddev_us": item.stats.stddev * 1e6}
    out |= {f"median_us_{unit}": item.stats.median * 1e6 / count for unit, count in item.extra_info.items()}
    return {name: round(value, 4) for name, value in out.items()} | {"rounds": item.stats.rounds}


def index(json: bool) -> int:
    """Run the prefix index's workloads; returns 0."""
    from smg.cli import index_bench

    figures = index_bench.run()
    if json:
        print(msgspec.json.encode(figures).decode())
        return 0
    reference = figures.pop("reference")
    for name, value in figures.items():
        print(f"{name:34}{value:>16}")
    print(f"published for the reference: {reference}")
    return 0


def routing(given: argparse.Namespace) -> int:
    """Run the simulations of all traces and policies, or take their figures from a file; returns the exit status."""
    from smg.cli import routing_bench

    draw: Callable[[Figures, Path], list[Path]] | None = None
    if given.plot is not None:
        # Not known after some minutes only.
        try:
            from smg.cli import routing_plot

            draw = routing_plot.draw
        except ModuleNotFoundError as error:
            hint = f"{sys.executable} -m pip install matplotlib"
            print(f"smg-bench: {error.name} is missing; try: {hint}", file=sys.stderr)
            return 2
    try:
        if given.figures is None:
            figures = routing_bench.run(given.requests, seeds=given.seeds or routing_bench.SEEDS)
        else:
            figures = msgspec.json.decode(given.figures.read_bytes(), type=routing_bench.Figures)
        for path in draw(figures, given.plot) if draw is not None else ():
            print(f"smg-bench: wrote {path}", file=sys.stderr)
    except (OSError, msgspec.DecodeError) as error:
        print(f"smg-bench: {error}", file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"smg-bench: {given.figures} has no {error.args[0]}", file=sys.stderr)
        return 2
    if given.json:
        print(msgspec.json.encode(figures).decode())
        return 0
    _tell_routing(figures)
    return 0


def _tell_routing(figures: Figures) -> None:
    from smg.cli import routing_bench

    names = [name for name in next(iter(figures.values()))["cache_aware"] if "_by_" not in name]
    print(f"{'trace':16}{'policy':16}" + "".join(f"{name:>20}" for name in names))
    for trace, policies in figures.items():
        for policy, values in policies.items():
            print(f"{trace:16}{policy:16}" + "".join(f"{values[name]:>20}" for name in names))
    print("\ncache_aware by the others: median, worst")
    for trace, policies in figures.items():
        ours = policies["cache_aware"]
        for name in routing_bench.COMPARED:
            print(f"{trace:16}{name:26}{ours[name]:>10}{ours[f'{name}_worst']:>10}")


def vision(json: bool, folder: Path = MICRO.parent) -> int:
    """Run the benchmark of image preprocessing in ``folder``; returns the exit status."""
    if not (folder / "vision.py").is_file():
        print(f"smg-bench: {folder} does not exist; the vision benchmark needs a checkout", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "benchmarks.vision", *(["--json"] if json else [])]
    return subprocess.run(command, cwd=folder.parent, check=False).returncode


def load(given: argparse.Namespace) -> int:
    """Run the load generator; returns 0 when every answer was complete, else 1, or 2 when it could not begin."""
    try:
        from smg.cli import load as generator
        from smg.cli.load_report import text
    except ModuleNotFoundError as error:
        print(f"smg-bench: {error.name} is missing; try: {sys.executable} -m pip install aiohttp", file=sys.stderr)
        return 2
    names = {field.name for field in msgspec.structs.fields(generator.Plan)}
    plan = generator.Plan(**{name: value for name, value in vars(given).items() if name in names})
    plan = msgspec.structs.replace(plan, url=plan.url.rstrip("/").removesuffix("/v1"))
    try:
        report = asyncio.run(generator.run(plan))
    except generator.LoadError as error:
        print(f"smg-bench: {error}", file=sys.stderr)
        return 2
    print(msgspec.json.encode(report).decode() if given.json else text(report))
    return 0 if report.completed == report.requests else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = parser().parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        match given.command:
            case "micro":
                return micro(given.json, given.k)
            case "index":
                return index(given.json)
            case "routing":
                return routing(given)
            case "vision":
                return vision(given.json)
            case _:
                return load(given)
    return 130


if __name__ == "__main__":
    sys.exit(main())
