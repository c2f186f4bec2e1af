"""The settings tree as a flat list of fields: what the command line, the environment and the reference page need."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from smg.config.settings import Settings

# The part of the tree that only a file can give: settings of single models.
MODELS = "models"


class Field(msgspec.Struct, frozen=True):
    """One setting. ``shape`` is ``flag`` (bool), ``value`` or ``list``; ``choices`` is empty unless it is an enum."""

    group: str
    name: str
    flag: str
    aliases: tuple[str, ...]
    text: str
    kind: type
    shape: str
    choices: tuple[str, ...]
    default: Any
    secret: bool
    limits: dict[str, float]

    @property
    def path(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def env(self) -> str:
        return "SMG_" + self.flag.removeprefix("--").replace("-", "_").upper()


def group_text(group: str) -> str:
    """Help text of a group: its docstring."""
    kind = get_type_hints(Settings)[group]
    return (kind.__doc__ or "").strip()


def fields() -> Iterator[Field]:
    """All settings, in the order of the tree."""
    defaults = Settings()
    for group, kind in get_type_hints(Settings).items():
        if group == MODELS:
            continue
        hints = get_type_hints(kind, include_extras=True)
        for name, hint in hints.items():
            inner, *metas = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            meta = next(item for item in metas if isinstance(item, msgspec.Meta))
            extra = meta.extra or {}
            base, shape, choices = _shape(inner)
            limits = {key: getattr(meta, key) for key in ("gt", "ge", "lt", "le") if getattr(meta, key) is not None}
            yield Field(
                group=group,
                name=name,
                flag=extra["flag"],
                aliases=tuple(extra["aliases"]),
                text=meta.description or "",
                kind=base,
                shape=shape,
                choices=choices,
                default=getattr(getattr(defaults, group), name),
                secret=bool(extra["secret"]),
                limits=limits,
            )


def _shape(hint: Any) -> tuple[type, str, tuple[str, ...]]:
    origin = get_origin(hint)
    if origin is Literal:
        return str, "value", get_args(hint)
    if origin is tuple:
        return get_args(hint)[0], "list", ()
    if origin in (Union, types.UnionType):
        inner = next(item for item in get_args(hint) if item is not type(None))
        return _shape(inner)
    if hint is bool:
        return bool, "flag", ()
    return hint, "value", ()
