"""The connection options of every command that talks to a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands.shared.messages import print_note
from klog.commands.shared.option_sets import option_set, valued
from klog.commands.shared.version import show_version

if TYPE_CHECKING:
    from klog.admin.settings import ClientSettings
    from klog.client.cluster import Cluster


Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version of klog.", is_eager=True, callback=show_version, hidden=True
    ),
]
"""Kafka's tools have this option each; klog has it before the name of the command, too."""


@option_set("Connection")
class ConnectionOptions:
    """Which cluster to connect to, and how."""

    bootstrap_server: str | None = valued(
        "HOST:PORT",
        "A broker of the cluster, or several with commas. [default: the profile's, or 127.0.0.1:9092]",
        "--bootstrap-server",
        "-b",
        envvar="KLOG_BOOTSTRAP_SERVER",
    )
    command_config: Path | None = valued(
        "FILE", "A file of client properties as for Kafka's tools (`security.protocol`, `ssl.*`, `sasl.*`)."
    )
    timeout_ms: int | None = valued("MS", "The time limit for each answer. [default: 30000]", least=1)
    profile: str | None = valued(
        "NAME",
        "The connection settings of this name (`klog profile add`). [default: the current profile]",
        envvar="KLOG_PROFILE",
    )
    command_property: list[str] | None = valued(
        "KEY=VALUE",
        "A client property, which takes precedence over those of files and profiles (repeatable).",
        "--command-property",
        "-X",
    )
    version: Version = False

    @property
    def is_named(self) -> bool:
        """Whether the options say which cluster is meant."""
        named = (self.bootstrap_server, self.command_config, self.profile, self.command_property)
        return any(named)

    def settings(self, more: Mapping[str, str] | None = None) -> ClientSettings:
        """The settings that the options make; `more` properties take precedence. Raises UsageError.

        Warns of files that hold secrets and that others can read.
        """
        from klog.admin.settings import settings_of
        from klog.commands.shared.client_properties import gather, warn_of_readers

        found = gather(
            self.profile, self.command_config, self.command_property, self.bootstrap_server, os.environ
        )
        warn_of_readers(found.secret_files)
        return settings_of(
            {**found.properties, **(more or {})},
            bootstrap=self.bootstrap_server,
            timeout_ms=self.timeout_ms,
            on_waiting=print_note,
        )

    def cluster(self) -> AbstractContextManager[Cluster]:
        """The cluster, connected to one broker. Raises UsageError, ClientError, ChannelError."""
        from klog.admin import connect

        return connect.cluster(self.settings())
