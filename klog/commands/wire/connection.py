"""Which cluster, and how to talk to it: the options that every command over the wire has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.settings import ClientSettings

_PANEL: Final = "Connection"

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KLOG_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="A broker of the cluster, or several with commas. [default: 127.0.0.1:9092]",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client properties, as Kafka's tools take them (security.protocol, ssl.*, sasl.*).",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
TimeoutMs = Annotated[
    int | None,
    typer.Option(
        "--timeout-ms",
        min=1,
        metavar="MS",
        help="How long an answer may take. [default: 30000]",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]


def connection(
    bootstrap_server: str | None, command_config: Path | None, timeout_ms: int | None
) -> ClientSettings:
    """The settings that the options make. Raises UsageError."""
    from klog.admin.settings import settings_of
    from klog.formats import java_properties

    properties: dict[str, str] = {}
    if command_config is not None:
        try:
            properties = java_properties.entries(java_properties.parse(command_config.read_bytes()))
        except OSError as error:
            raise UsageError(f"--command-config {command_config} cannot be read: {error.strerror}") from error
    return settings_of(properties, bootstrap=bootstrap_server, timeout_ms=timeout_ms)
