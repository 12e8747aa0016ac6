"""Keeps named connection settings: the profiles of clusters in klog's own file of settings.

The file is TOML: `current` names the profile in use, and each table below `profiles` has Kafka's client
properties. It may be edited by hand; comments stay when klog changes it. Profiles may hold secrets, so only
the user can read the file.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from klog.formats.errors import FormatError, UsageError
from klog.storage.files.files import storage_error, write_atomically

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SECRET: Final = re.compile(r"password|secret|token$|\.key$|jaas", re.IGNORECASE)
_HIDDEN: Final = "[hidden]"
_SECRET_OPTION: Final = re.compile(
    r'(\b\w*(?:password|secret)\w*\s*=\s*)("(?:[^"\\]|\\.)*"|[^\s;]+)', re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles by name, and which of them is current (None if none is)."""

    by_name: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Mapping[str, str]:
        """The properties of a profile. Raises UsageError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "there is none yet"
            raise UsageError(f"there is no profile {name}", cure=f"klog profile add {name}; known: {known}")
        return self.by_name[name]

    def with_profile(self, name: str, properties: Mapping[str, str]) -> Profiles:
        """These profiles and another, which becomes current if it is the first. Raises UsageError."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a profile", cure="letters, digits, dots, _ and -")
        current = self.current if self.by_name else name
        return replace(self, by_name={**self.by_name, name: dict(properties)}, current=current)

    def without(self, name: str) -> Profiles:
        """These profiles but one; if it was current, none is. Raises UsageError."""
        self.named(name)
        rest = {other: properties for other, properties in self.by_name.items() if other != name}
        return Profiles(rest, None if self.current == name else self.current)

    def using(self, name: str) -> Profiles:
        """These profiles with another current one. Raises UsageError."""
        self.named(name)
        return replace(self, current=name)


def settings_path(environment: Mapping[str, str]) -> Path:
    """Where klog's settings of this user are (XDG Base Directory Specification)."""
    base = environment.get("XDG_CONFIG_HOME")
    home = Path(base) if base else Path(environment.get("HOME", "~")).expanduser() / ".config"
    return home / "klog" / "config.toml"


def read_profiles(path: Path) -> Profiles:
    """The profiles of a file, none if it does not exist. Raises StorageError, FormatError."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise storage_error("cannot be read", path, error) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"it is not TOML: {error}", file=str(path)) from error
    tables, current = found.get("profiles", {}), found.get("current")
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise FormatError("`profiles` must be a table of tables", file=str(path))
    if current is not None and not isinstance(current, str):
        raise FormatError("`current` must be the name of a profile", file=str(path))
    return Profiles({name: dict(_flat(table)) for name, table in tables.items()}, current)


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Properties by their whole names: TOML reads `sasl.mechanism` without quotes as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value)


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Make the file hold these profiles; keeps its comments. Raises StorageError, FormatError."""
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        document = tomlkit.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise storage_error("cannot be written", path, error) from error
    except (ParseError, UnicodeDecodeError) as error:
        raise FormatError(f"it is not TOML: {error}", file=str(path)) from error
    document.pop("current", None)
    if profiles.current is not None:
        document["current"] = profiles.current
    tables = document.setdefault("profiles", tomlkit.table(is_super_table=True))
    for name in [each for each in tables if each not in profiles.by_name]:
        del tables[name]
    for name, properties in profiles.by_name.items():
        if name in tables and dict(_flat(tables[name])) == properties:
            continue
        table = tomlkit.table()
        for key, value in properties.items():
            table[key] = value
        tables[name] = table
    write_atomically(path, tomlkit.dumps(document).encode())


def visible_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for people to see: passwords and other secrets are hidden."""
    return {key: _without_secrets(key, value) for key, value in properties.items()}


def _without_secrets(key: str, value: str) -> str:
    if key == "sasl.jaas.config":
        return _SECRET_OPTION.sub(rf"\1{_HIDDEN}", value)
    return _HIDDEN if _SECRET.search(key) else value


def has_secrets(properties: Mapping[str, str]) -> bool:
    """Whether the properties hold a secret themselves."""
    return visible_properties(properties) != dict(properties)


def open_to_others(paths: Iterable[Path]) -> list[Path]:
    """The files that other users of this machine can read."""
    found = []
    for path in paths:
        with suppress(OSError):
            if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRGRP | stat.S_IROTH):
                found.append(path)
    return found
