"""Gathers the client properties of a command: from a profile, a file and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from klog.admin.profiles import has_secrets, open_to_others, read_profiles, settings_path
from klog.commands.shared.messages import print_note
from klog.commands.shared.properties import given_properties, properties_file


class ClientProperties(NamedTuple):
    """Kafka's client properties, and the files from which secrets came."""

    properties: Mapping[str, str]
    secret_files: tuple[Path, ...]


def gather(
    profile: str | None,
    command_config: Path | None,
    command_property: Sequence[str] | None,
    bootstrap_server: str | None,
    environment: Mapping[str, str],
) -> ClientProperties:
    """The properties; what is given on the command line goes before the file, the file before the profile.

    The current profile counts only if nothing else says which cluster is meant: its password must not go to
    another one. Raises UsageError, StorageError, FormatError.
    """
    path = settings_path(environment)
    profiles = read_profiles(path)
    if profile is None and bootstrap_server is None and command_config is None:
        profile = profiles.current
    of_profile = {} if profile is None else profiles.named(profile)
    of_file = properties_file(command_config)
    found = {**of_profile, **of_file, **given_properties("-X", command_property)}
    files = [path] if has_secrets(of_profile) else []
    if command_config is not None and has_secrets(of_file):
        files.append(command_config)
    if found.get("sasl.mechanism") == "OAUTHBEARER":
        from klog.client.oauth_tokens import token_file

        if (token := token_file(found)) is not None:
            files.append(token)
    if key_store := found.get("ssl.keystore.location"):
        files.append(Path(key_store))
    return ClientProperties(found, tuple(files))


def warn_of_readers(files: Iterable[Path]) -> None:
    """Say which of the files, which hold secrets, other users can read."""
    for path in open_to_others(files):
        print_note(f"{path} holds secrets, and other users can read it (chmod 600 {path})")
