"""The connection options of every command that talks to a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands._messages import print_note
from klog.commands.option_groups import option

if TYPE_CHECKING:
    from klog.admin.settings import ClientSettings

_PANEL: Final = "Connection"

ValidateOnly = Annotated[
    bool, typer.Option("--validate-only", help="Check whether the change is possible; change nothing.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from klog.commands.main import show_version

        show_version()


Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version of klog.", is_eager=True, callback=_show_version, hidden=True
    ),
]
"""Kafka's tools have this option each; klog has it before the name of the command, too."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Which cluster to connect to, and how."""

    bootstrap_server: Annotated[
        str | None,
        option(
            _PANEL,
            "A broker of the cluster, or several with commas. [default: 127.0.0.1:9092]",
            *("--bootstrap-server", "-b"),
            metavar="HOST:PORT",
            envvar="KLOG_BOOTSTRAP_SERVER",
            show_default=False,
        ),
    ] = None
    command_config: Annotated[
        Path | None,
        option(
            _PANEL,
            "A file of client properties as for Kafka's tools (`security.protocol`, `ssl.*`, `sasl.*`).",
            "--command-config",
            metavar="FILE",
            show_default=False,
        ),
    ] = None
    timeout_ms: Annotated[
        int | None,
        option(
            _PANEL,
            "The time limit for each answer. [default: 30000]",
            "--timeout-ms",
            metavar="MS",
            least=1,
            show_default=False,
        ),
    ] = None
    version: Version = False

    def settings(self, more: Mapping[str, str] | None = None) -> ClientSettings:
        """The settings that the options make; `more` properties take precedence. Raises UsageError."""
        from klog.admin.settings import settings_of
        from klog.commands.wire.properties import properties_file

        return settings_of(
            properties_file(self.command_config) | dict(more or {}),
            bootstrap=self.bootstrap_server,
            timeout_ms=self.timeout_ms,
            on_waiting=print_note,
        )
