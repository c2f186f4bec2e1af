"""What a load run measured, from one record per request to one report."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from smg.cli.process_usage import Usage


class Record(msgspec.Struct):
    """One request. Times are in seconds from its start; ``error`` is empty when the answer was complete.

    ``first`` is the time of the first content (the whole answer, when it was not streamed); ``gaps`` are the times
    between content events.
    """

    error: str = ""
    latency: float = 0.0
    first: float = 0.0
    gaps: list[float] = msgspec.field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0


class Spread(msgspec.Struct, frozen=True):
    """Distribution of a time, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Report(msgspec.Struct, frozen=True):
    """The one object ``smg-bench load --json`` prints.

    Rates and token counts are those of complete answers. ``ttft_ms`` is the time to the first content, ``itl_ms`` the
    gaps between content events, ``tpot_ms`` a request's time per output token after the first; all three are None
    when there were none (the last two always are without streaming).
    """

    url: str
    model: str
    streamed: bool
    concurrency: int
    requests: int
    completed: int
    errors: dict[str, int]
    seconds: float
    requests_per_second: float
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_second: float
    latency_ms: Spread | None
    ttft_ms: Spread | None
    itl_ms: Spread | None
    tpot_ms: Spread | None
    usage: Usage | None = None
    cpu_seconds_per_million_tokens: float | None = None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of ascending values; ``share`` is in (0, 1]."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(seconds: Sequence[float]) -> Spread | None:
    """Distribution of ``seconds``, None when there are none."""
    if not seconds:
        return None
    ordered = sorted(value * 1000 for value in seconds)
    mean = sum(ordered) / len(ordered)
    values = [mean, *(percentile(ordered, share) for share in (0.5, 0.9, 0.99)), ordered[-1]]
    return Spread(*(round(value, 3) for value in values))


def summarize(
    records: Sequence[Record],
    *,
    url: str,
    model: str,
    streamed: bool,
    concurrency: int,
    seconds: float,
    usage: Usage | None = None,
) -> Report:
    """Fold the records of one run; ``seconds`` is its wall time."""
    done = [record for record in records if not record.error]
    output = sum(record.output_tokens for record in done)
    paced = [record for record in done if streamed and record.output_tokens > 1]
    return Report(
        url=url,
        model=model,
        streamed=streamed,
        concurrency=concurrency,
        requests=len(records),
        completed=len(done),
        errors=dict(Counter(record.error for record in records if record.error)),
        seconds=round(seconds, 3),
        requests_per_second=round(len(done) / seconds, 3),
        prompt_tokens=sum(record.prompt_tokens for record in done),
        output_tokens=output,
        output_tokens_per_second=round(output / seconds, 3),
        latency_ms=spread([record.latency for record in done]),
        ttft_ms=spread([record.first for record in done]),
        itl_ms=spread([gap for record in done for gap in record.gaps]),
        tpot_ms=spread([(record.latency - record.first) / (record.output_tokens - 1) for record in paced]),
        usage=usage,
        cpu_seconds_per_million_tokens=round(usage.cpu_seconds / output * 1e6, 3) if usage and output else None,
    )


def text(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.model} at {report.url}: {report.completed} of {report.requests} requests complete, "
        f"{report.concurrency} at a time, {report.seconds} s",
        f"  {report.requests_per_second} requests/s, {report.output_tokens_per_second} output tokens/s "
        f"({report.prompt_tokens} prompt and {report.output_tokens} output tokens)",
    ]
    for name, values in (
        ("latency", report.latency_ms),
        ("time to first token", report.ttft_ms),
        ("between events", report.itl_ms),
        ("per output token", report.tpot_ms),
    ):
        if values is not None:
            lines.append(
                f"  {name:<20} mean {values.mean:9.2f}  p50 {values.p50:9.2f}  p90 {values.p90:9.2f}  "
                f"p99 {values.p99:9.2f}  max {values.max:9.2f} ms"
            )
    if report.usage is not None:
        lines.append(
            f"  {report.usage.cpu_seconds} CPU s in {report.usage.processes} processes "
            f"({report.cpu_seconds_per_million_tokens} s per million output tokens), "
            f"peak {report.usage.rss_mib_peak} MiB resident"
        )
        lines += [f"    {name}: {used} CPU s" for name, used in report.usage.cpu_seconds_by_command.items()]
    lines += [f"  {count} x {error}" for error, count in report.errors.items()]
    return "\n".join(lines)
