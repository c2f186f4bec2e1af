"""The settings tree. A field's ``Meta`` holds its help text, limits and flag; everything else is generated.

Flags carry the reference gateway's names where they mean the same. A field ``server.host`` with flag ``--host`` is
also read from the environment as ``SMG_HOST`` and from YAML as ``server: {host: …}``.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from smg.config.groups.discovery import DiscoverySettings
from smg.config.groups.fleet import DisaggregationSettings, FleetSettings
from smg.config.groups.model import MediaSettings, ModelSettings, TokenizerCacheSettings
from smg.config.groups.routing import RoutingSettings
from smg.config.groups.server import (
    AdmissionSettings,
    EmbeddedSettings,
    SecuritySettings,
    ServerSettings,
    TelemetrySettings,
)
from smg.config.option import Group

__all__ = [
    "AdmissionSettings",
    "DisaggregationSettings",
    "DiscoverySettings",
    "EmbeddedSettings",
    "FleetSettings",
    "MediaSettings",
    "ModelSettings",
    "RoutingSettings",
    "SecuritySettings",
    "ServerSettings",
    "Settings",
    "TelemetrySettings",
    "TokenizerCacheSettings",
    "of_model",
]


class Settings(Group, frozen=True):
    """Everything that can be configured."""

    server: ServerSettings = ServerSettings()
    fleet: FleetSettings = FleetSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    model: ModelSettings = ModelSettings()
    tokenizer_cache: TokenizerCacheSettings = TokenizerCacheSettings()
    routing: RoutingSettings = RoutingSettings()
    disaggregation: DisaggregationSettings = DisaggregationSettings()
    admission: AdmissionSettings = AdmissionSettings()
    media: MediaSettings = MediaSettings()
    security: SecuritySettings = SecuritySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    models: Annotated[
        dict[str, ModelSettings],
        Meta(description="Settings of single models by their id or alias, with the names of the group 'model'."),
    ] = msgspec.field(default_factory=dict)

    def of_model(self, *names: str) -> ModelSettings:
        """The settings of the model that has these names: its own where it has any, else those of all models."""
        return of_model(self.model, self.models, *names)


def of_model(settings: ModelSettings, models: Mapping[str, ModelSettings], *names: str) -> ModelSettings:
    """As ``Settings.of_model``, of the settings of all models and of single ones."""
    own = next((models[name] for name in names if name in models), None)
    if own is None:
        return settings
    given = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
    return msgspec.structs.replace(settings, **given)
