"""Replaces the variables of a properties file, `${provider:path:key}`, by values that a provider looks up.

Rules: KIP-421 and KIP-297, Kafka's AbstractConfig, ConfigTransformer and its own providers: files (KIP-297),
directories (KIP-632) and environment variables (KIP-887), limited to allowed paths and names (KIP-993). A
variable that no provider knows stays as it is written. Kafka replaces variables in dynamic configs too; klog
does it only in the broker's own properties.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from klog.config.keys import ConfigError
from klog.formats import java_properties
from klog.formats.errors import KlogError
from klog.storage.files.files import read_whole

_PROVIDERS: Final = "config.providers"
_CLASSES: Final = "org.apache.kafka.common.config.provider."
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


class _Settings(NamedTuple):
    """The configs of a provider: the prefix of their names, and its parameters."""

    prefix: str
    parameters: Mapping[str, str]

    def unusable(self, value: str, why: str) -> ConfigError:
        """The error for a provider that cannot be used."""
        return ConfigError(self.prefix, value, why)


# Returns the value of a key at a path, or None. Raises `ConfigError`.
_LookUp = Callable[[_Settings, str, str], str | None]


def with_variables_replaced(texts: Mapping[str, str]) -> dict[str, str]:
    """The configs with their variables replaced. Raises `ConfigError`."""
    providers = _providers(texts)
    if not providers:
        return dict(texts)

    def value(variable: re.Match[str]) -> str:
        name, path, key = variable.groups()
        provider = providers.get(name)
        found = None if provider is None else provider(path or "", key)
        return variable[0] if found is None else found

    return {name: _VARIABLE.sub(value, text) for name, text in texts.items()}


def _providers(texts: Mapping[str, str]) -> dict[str, Callable[[str, str], str | None]]:
    """The providers by name. Raises `ConfigError`."""
    found: dict[str, Callable[[str, str], str | None]] = {}
    for name in filter(None, texts.get(_PROVIDERS, "").split(",")):
        key = f"{_PROVIDERS}.{name}.class"
        if key not in texts:
            continue
        look_up = _LOOK_UPS.get(texts[key].removeprefix(_CLASSES))
        if look_up is None:
            known = ", ".join(_CLASSES + each for each in _LOOK_UPS)
            raise ConfigError(key, texts[key], "this provider is not supported", cure=f"one of {known}")
        prefix = f"{_PROVIDERS}.{name}.param."
        parameters = {
            each.removeprefix(prefix): text for each, text in texts.items() if each.startswith(prefix)
        }
        found[name] = partial(look_up, _Settings(f"{_PROVIDERS}.{name}", parameters))
    return found


def _in_file(settings: _Settings, path: str, key: str) -> str | None:
    if not path or not _allowed(settings, path):
        return None
    try:
        lines = java_properties.parse_text(read_whole(path).decode())
    except (KlogError, OSError, UnicodeDecodeError) as error:
        raise settings.unusable(path, f"its properties cannot be read: {error}") from error
    return java_properties.entries(lines).get(key)


def _in_directory(settings: _Settings, path: str, key: str) -> str | None:
    file = os.path.join(path, key)
    if not path or not _allowed(settings, path) or "/" in key or not os.path.isfile(file):
        return None
    try:
        return read_whole(file).decode("utf-8", "replace")
    except (KlogError, OSError) as error:
        raise settings.unusable(file, f"it cannot be read: {error}") from error


def _in_environment(settings: _Settings, path: str, key: str) -> str | None:
    if path:
        raise settings.unusable(path, "environment variables have no path")
    pattern = settings.parameters.get("allowlist.pattern", ".*")
    try:
        return os.environ.get(key) if re.fullmatch(pattern, key) else None
    except re.error as error:
        raise settings.unusable(pattern, f"it is not a regular expression: {error}") from error


def _allowed(settings: _Settings, path: str) -> bool:
    """Whether `allowed.paths` allows a path, or is not set. Raises `ConfigError`."""
    allowed = settings.parameters.get("allowed.paths")
    if not allowed:
        return True
    wanted = os.path.normpath(path)
    found = False
    for root in map(os.path.normpath, allowed.split(",")):
        if not os.path.isabs(root) or not os.path.exists(root):
            raise settings.unusable(root, "paths in allowed.paths must be absolute and exist")
        found = found or wanted == root or wanted.startswith(root.rstrip("/") + "/")
    return found


_LOOK_UPS: Final[Mapping[str, _LookUp]] = {
    "FileConfigProvider": _in_file,
    "DirectoryConfigProvider": _in_directory,
    "EnvVarConfigProvider": _in_environment,
}
