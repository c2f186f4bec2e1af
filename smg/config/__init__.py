"""One typed settings tree. Flags, environment variables, the YAML file and the reference page come from it."""

from smg.config.load import SettingsError, load
from smg.config.settings import Settings

__all__ = ["Settings", "SettingsError", "load"]
