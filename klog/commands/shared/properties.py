"""Reads the properties that Kafka's tools take: `--property KEY=VALUE` and files of properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from klog.formats import java_properties
from klog.formats.errors import FormatError, UsageError
from klog.storage.files.files import storage_error


def properties_file(path: Path | None) -> dict[str, str]:
    """The properties of a file, none without a path. Raises StorageError, FormatError."""
    if path is None:
        return {}
    try:
        return java_properties.config_entries(path.read_bytes())
    except FormatError as error:
        raise error.at(str(path)) from None
    except OSError as error:
        raise storage_error("cannot be read", path, error) from error


def text_of(path: Path) -> str:
    """The text of a file. Raises StorageError, FormatError."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise storage_error("cannot be read", path, error) from error
    except UnicodeDecodeError as error:
        raise FormatError("is no text in UTF-8", file=str(path)) from error


def given_properties(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Keys and values of `KEY=VALUE` texts, as Kafka's tools take them: a key alone has the empty value.

    Raises UsageError.
    """
    found = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if not key:
            raise UsageError(f"{option} {text!r} is not KEY=VALUE")
        found[key] = value
    return found


def is_true(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Whether a property is `true`, in Kafka's spelling: any case, anything else is false."""
    value = properties.get(name)
    return default if value is None else value.strip().lower() == "true"
