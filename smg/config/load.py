"""Reading settings: flags over environment over YAML over defaults, and all mistakes in one report."""

import argparse
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import yaml

from smg._version import __version__
from smg.config import discovery, legs, tenants
from smg.config.fields import MODELS, Field, fields, group_text
from smg.config.hub_names import hub_name
from smg.config.settings import ModelSettings, Settings

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


class SettingsError(Exception):
    """One or more settings are wrong; ``problems`` has a line each and never the value of a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


# An engine's address without a scheme, maybe with a data-parallel rank.
# Schemes of engines that work alone, in pairs, and as encoders.
_SCHEMES = ("grpc", "grpcs", "http", "https", "ipc", "zmq")
_PAIRS = ("grpc", "grpcs", "http", "https")
_ENCODERS = ("grpc", "grpcs")
_RANK = re.compile(r"@\d+$")
_HOST_AND_PORT = re.compile(r"[^\s/@]+:\d+(@\d+)?")


def parser(prog: str = "smg-server") -> argparse.ArgumentParser:
    """Build the command line from the settings tree."""
    out = argparse.ArgumentParser(
        prog=prog,
        description="LLM serving gateway.",
        epilog="'smg-server fleet' shows the engines of a running gateway. "
        "Each flag can also be given as an environment variable (SMG_PORT for --port) or in the file named by "
        "--config; flags win over the environment, the environment over the file.",
        allow_abbrev=False,
    )
    out.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    out.add_argument("--config", metavar="FILE", help="YAML settings file.")
    groups: dict[str, Any] = {}
    for field in fields():
        if field.group not in groups:
            groups[field.group] = out.add_argument_group(field.group, group_text(field.group))
        _add(groups[field.group], field)
    return out


def _add(group: Any, field: Field) -> None:
    text = field.text.replace("%", "%%")
    if field.default not in (None, (), False) and not field.secret and field.name != "state_dir":
        shown = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        text += f" (default: {shown})"
    names = [field.flag, *field.aliases]
    common: dict[str, Any] = {"dest": field.path, "default": None, "help": text}
    if field.shape == "flag":
        group.add_argument(*names, action=argparse.BooleanOptionalAction, **common)
    elif field.shape == "list":
        group.add_argument(*names, nargs="*" if not field.secret else None, action="append", metavar="VALUE", **common)
    else:
        metavar = "{" + ",".join(field.choices) + "}" if field.choices else field.kind.__name__.upper()
        group.add_argument(*names, metavar=metavar, **common)


# Without them everyone may come in.
_LOCKS = frozenset({"security.api_key", "security.admin_key", "security.tenant_api_key"})


def load(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read all sources and return the settings.

    Raises:
        SettingsError: with every problem found.
        SystemExit: argparse, for ``--help``, ``--version`` and unknown flags.
    """
    given = parser().parse_args(arguments)
    return resolve(vars(given), os.environ if environ is None else environ, given.config)


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str], config: str | None) -> Settings:
    """Merge the sources. ``flags`` maps field paths to argparse values, None where a flag was not given."""
    problems: list[str] = []
    tree = _read_yaml(config, problems)
    for field in fields():
        value = flags.get(field.path)
        if value is not None:
            _put(tree, field, _plain(value), field.flag, problems)
        elif field.env in environ:
            text = environ[field.env]
            if field.path in _LOCKS and not text.strip():
                # Most likely a secret that was not found. Nobody means to open the gateway in this way.
                problems.append(f"{field.env} is set and empty: unset it to let everyone in, or give a key")
            _put(tree, field, shlex.split(text) if field.shape == "list" else text, field.env, problems)
    settings = _convert(tree, problems)
    problems += check(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def _convert(tree: Mapping[str, Mapping[str, Any]], problems: list[str]) -> Settings:
    """Convert group by group and field by field, so that one mistake does not hide the next."""
    kinds = get_type_hints(Settings)
    groups: dict[str, Any] = {}
    for group, values in tree.items():
        if group == MODELS:
            groups[group] = {str(name): _model(str(name), own, problems) for name, own in values.items()}
            continue
        good: dict[str, Any] = {}
        for name, value in values.items():
            try:
                good[name] = getattr(msgspec.convert({name: value}, kinds[group], strict=False), name)
            except msgspec.ValidationError as error:
                problems.append(f"{group}.{name}: {_hide(str(error))}")
        groups[group] = kinds[group](**good)
    return Settings(**groups)


def _model(name: str, values: Any, problems: list[str]) -> ModelSettings:
    """The settings of one model."""
    try:
        return msgspec.convert(values or {}, ModelSettings, strict=False)
    except msgspec.ValidationError as error:
        problems.append(f"models.{name}: {_hide(str(error))}")
        return ModelSettings()


def check(settings: Settings) -> list[str]:
    """Rules over more than one field (spec api-and-ops 3.5); returns a line per broken one."""
    out = []
    server = settings.server
    if (server.tls_cert_path is None) != (server.tls_key_path is None):
        out.append("--tls-cert-path and --tls-key-path must be given together")
    for flag, path in (("--tls-cert-path", server.tls_cert_path), ("--tls-key-path", server.tls_key_path)):
        if path is not None and not os.access(path, os.R_OK):
            out.append(f"{flag}: {path!r} cannot be read")
    paths = [*_paths("--", settings.model), ("--embedded-model", settings.embedded.embedded_model)]
    paths += [found for name, own in settings.models.items() for found in _paths(f"models.{name}.", own)]
    for flag, path in paths:
        named = flag.endswith(("model-path", "tokenizer-path")) and path is not None and hub_name(path) is not None
        if path is not None and not named and not Path(path).exists():
            out.append(f"{flag}: {path!r} does not exist")
    for flag, keys in (("--api-key", settings.security.api_key), ("--admin-key", settings.security.admin_key)):
        if any(not key.strip() or key != key.strip() for key in keys):
            out.append(f"{flag}: a key must not be empty or have spaces around it")
    out += _check_tenants(settings)
    if settings.media.tensor_transport == "rdma":
        out.append("--multimodal-tensor-transport: there is no RDMA here; engines on this host can have shm or auto")
    seen: set[str] = set()
    for flag, url in _addresses(settings, out):
        scheme, mark, rest = url.partition("://")
        schemes = _SCHEMES if flag == "--worker-urls" else _ENCODERS if flag == "--encode" else _PAIRS
        named = scheme in schemes and bool(rest)
        if not (named if mark else flag == "--worker-urls" and _HOST_AND_PORT.fullmatch(url)):
            out.append(f"{flag}: {url!r} is not an engine address such as grpc://127.0.0.1:50051")
        if url in seen:
            out.append(f"{flag}: {url!r} is given twice")
        seen.add(url)
    known = {_RANK.sub("", url) for url in seen}
    for key in settings.fleet.worker_api_key:
        if "://" in key and not any(key.startswith(f"{url}=") for url in known):
            out.append("--worker-api-key: there is a key for a URL that is none of --worker-urls")
    return out + discovery.check(settings.discovery) + _check_pairs(settings)


def _check_tenants(settings: Settings) -> list[str]:
    out, keys = [], [*settings.security.api_key, *settings.security.admin_key]
    for flag, read, values in (
        ("--tenant-api-key", tenants.tenant_key, settings.security.tenant_api_key),
        ("--tenant-limit", tenants.tenant_limit, settings.admission.tenant_limit),
        ("--tenant-model-limit", tenants.tenant_model_limit, settings.admission.tenant_model_limit),
    ):
        for value in values:
            try:
                name, more = read(value)
            except ValueError as error:
                out.append(f"{flag}: {error}")
                continue
            if isinstance(more, str):
                if more in keys:
                    out.append(f"{flag}: the key of {name!r} is somebody else's too")
                keys.append(more)
    return out


def _addresses(settings: Settings, problems: list[str]) -> list[tuple[str, str]]:
    """All engines by the flags that name them."""
    found = [("--worker-urls", url) for url in settings.fleet.worker_urls]
    pairs = settings.disaggregation
    for flag, values in (("--prefill", pairs.prefill), ("--decode", pairs.decode), ("--encode", pairs.encode)):
        try:
            found += [(flag, url) for url, _ in legs.parse(values)]
        except ValueError as error:
            problems.append(f"{flag}: {error}")
    return found


def _check_pairs(settings: Settings) -> list[str]:
    """Whether a fleet is whole that must be, and of contracts that can be disaggregated (spec engine-contract 5.3)."""
    pairs, pods, out = settings.disaggregation, settings.discovery, []
    wanted = {
        "--prefill": (pairs.prefill or pods.prefill_selector, pairs.pd_disaggregation or pairs.epd_disaggregation),
        "--decode": (pairs.decode or pods.decode_selector, pairs.pd_disaggregation or pairs.epd_disaggregation),
        "--encode": (pairs.encode or pods.encode_selector, pairs.epd_disaggregation),
    }
    out += [f"{flag}: no such engine is given" for flag, (values, needed) in wanted.items() if needed and not values]
    if settings.fleet.backend in ("trtllm", "mlx") and (wanted["--prefill"][0] or wanted["--decode"][0]):
        out.append(f"--backend: engines of the {settings.fleet.backend} contract cannot be split in prefill and decode")
    if settings.fleet.backend not in (None, "tokenspeed") and wanted["--encode"][0]:
        out.append("--backend: only engines of the tokenspeed contract can be encode engines")
    return out


def _paths(prefix: str, model: ModelSettings) -> list[tuple[str, str | None]]:
    return [
        (f"{prefix}model-path", model.model_path),
        (f"{prefix}tokenizer-path", model.tokenizer_path),
        (f"{prefix}chat-template", model.chat_template),
    ]


def _read_yaml(path: str | None, problems: list[str]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        tree = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        problems.append(f"--config: {path}: {error}")
        return {}
    if tree is None:
        return {}
    known = {field.group for field in fields()} | {MODELS}
    if not isinstance(tree, dict):
        problems.append(f"--config: {path}: expected a mapping of groups ({', '.join(sorted(known))})")
        return {}
    out: dict[str, Any] = {}
    for group, values in tree.items():
        if group not in known:
            problems.append(f"--config: {path}: there is no group {group!r} (there are: {', '.join(sorted(known))})")
        elif isinstance(values, dict):
            out[group] = values
        elif values is not None:
            problems.append(f"--config: {path}: group {group!r}: expected a mapping of settings")
    return out


def _plain(value: Any) -> Any:
    """Flatten argparse's lists of lists; lists may also be separated by commas."""
    if not isinstance(value, list):
        return value
    flat: list[str] = []
    for item in value:
        flat += item if isinstance(item, list) else [item]
    return flat


def _put(tree: dict[str, Any], field: Field, value: Any, source: str, problems: list[str]) -> None:
    if field.shape == "list":
        if field.name == "embedded_args":
            value = [word for item in value for word in shlex.split(item)]
        elif not field.secret:
            value = [part for item in value for part in item.split(",") if part]
        tree.setdefault(field.group, {})[field.name] = value
        return
    if isinstance(value, str):
        try:
            value = _scalar(field, value)
        except ValueError as error:
            problems.append(f"{source}: {error}")
            return
    tree.setdefault(field.group, {})[field.name] = value


def _scalar(field: Field, text: str) -> Any:
    if field.shape == "flag":
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise ValueError(f"{text!r} is not true or false")
    if field.choices and text not in field.choices:
        raise ValueError(f"{text!r} is not one of {', '.join(field.choices)}")
    if field.kind is str:
        return text
    try:
        number = field.kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    for name, limit in field.limits.items():
        words = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
        fine = {"gt": number > limit, "ge": number >= limit, "lt": number < limit, "le": number <= limit}[name]
        if not fine:
            raise ValueError(f"{text} must be {words[name]} {limit:g}")
    return number


def _hide(text: str) -> str:
    """msgspec's messages name types and paths, never values; the path is ours already."""
    return text.split(" - at `$")[0].replace("`", "'")
