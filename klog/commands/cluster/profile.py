"""`klog profile`: keeps connection settings of clusters under names, and chooses the current one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands.cluster.profile_options import LoginOptions, TlsOptions
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.option_sets import CommandGroup, argument, flag, valued
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.terminal import agree
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.profiles import Profiles

app = CommandGroup(
    name="profile",
    help=(
        "Keep connection settings of clusters under names, and choose one.\n\n"
        "    Every command that talks to a cluster takes --profile NAME, or KLOG_PROFILE. Without them it"
        " uses the current profile, unless --bootstrap-server or --command-config is given.\n\n"
        "    Examples:\n\n"
        "    klog profile add prod --bootstrap-server a:9092,b:9092 --sasl SCRAM-SHA-512 --user me --tls\n\n"
        "    klog profile use prod"
    ),
    add_completion=False,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def _path() -> Path:
    from klog.admin.profiles import settings_path

    return settings_path(os.environ)


def _profiles() -> Profiles:
    from klog.admin.profiles import read_profiles

    return read_profiles(_path())


@app.command("add")
def add_profile(
    name: Name,
    change: ChangeOptions,
    login: LoginOptions,
    tls: TlsOptions,
    bootstrap_server: str | None = valued(
        "HOST:PORT", "A broker of the cluster, or several with commas.", "--bootstrap-server", "-b"
    ),
    command_config: Path | None = valued("FILE", "Take over the properties of a file for Kafka's tools."),
    command_property: list[str] | None = valued(
        "KEY=VALUE", "A client property as for Kafka's tools (repeatable).", "--command-property", "-X"
    ),
    use: bool = flag("Make it the current profile."),
    replace: bool = flag("Replace a profile of this name."),
) -> None:
    """Add a profile. The first one becomes current. The settings are checked, but no broker is asked.

    Examples:

        klog profile add local --bootstrap-server 127.0.0.1:9092
        klog profile add prod --bootstrap-server a:9093 --tls --ca ca.pem --sasl SCRAM-SHA-512 --user me
        klog profile add test --command-config client.properties --use
    """
    from klog.admin.profiles import has_secrets, write_profiles
    from klog.admin.settings import settings_of
    from klog.commands.shared.client_properties import warn_of_readers
    from klog.commands.shared.properties import given_properties, properties_file

    profiles = _profiles()
    if name in profiles.by_name and not replace:
        raise UsageError(f"there is a profile {name} already", cure="--replace replaces it")
    properties_of_file = properties_file(command_config)
    properties = dict(properties_of_file)
    if bootstrap_server is not None:
        properties["bootstrap.servers"] = bootstrap_server
    properties |= tls.properties()
    properties |= login.properties(tls=tls.wanted, read_password=_read_password)
    secret_files = [login.password_file, command_config if has_secrets(properties_of_file) else None]
    warn_of_readers(each for each in secret_files if each is not None)
    properties |= given_properties("-X", command_property)
    if "bootstrap.servers" not in properties:
        raise UsageError("the profile has no brokers", cure="--bootstrap-server host:port")
    settings_of(properties)
    changed = profiles.with_profile(name, properties)
    if use:
        changed = changed.using(name)
    if not change.dry_run:
        write_profiles(_path(), changed)
    note = " (current)" if changed.current == name else ""
    done = f"{'could be ' if change.dry_run else ''}added to {_path()}{note}"
    change.conclude([Outcome(name, {"profile": name}, done)])


def _read_password(user: str) -> str:
    """The password from KLOG_PASSWORD, or typed on the terminal. Raises UsageError."""
    if "KLOG_PASSWORD" in os.environ:
        return os.environ["KLOG_PASSWORD"]
    if not sys.stdin.isatty():
        raise UsageError(
            f"there is no password for {user}", cure="--password-file FILE, KLOG_PASSWORD, or a terminal"
        )
    from getpass import getpass

    return getpass(f"Password of {user}: ")


@app.command("list")
def list_profiles(output: OutputOptions) -> None:
    """List the profiles, and which one is current.

    Examples:

        klog profile list
    """
    profiles = _profiles()
    rows = [
        {
            "profile": name,
            "current": name == profiles.current,
            "bootstrapServers": properties.get("bootstrap.servers"),
            "securityProtocol": properties.get("security.protocol", "PLAINTEXT").upper(),
        }
        for name, properties in sorted(profiles.by_name.items())
    ]
    if output.for_people:
        rows = [{**row, "current": "*" if row["current"] else ""} for row in rows]
    output.show(
        rows,
        fields=("profile", "current", "bootstrapServers", "securityProtocol"),
        none="there are no profiles (klog profile add NAME --bootstrap-server HOST:PORT)",
    )


@app.command("show")
def show_profile(
    output: OutputOptions,
    name: str | None = argument("[NAME]", "[default: the current one]"),
) -> None:
    """Show the properties of a profile. Passwords and other secrets are hidden.

    Examples:

        klog profile show prod
    """
    from klog.admin.profiles import visible_properties

    profiles = _profiles()
    name = name or profiles.current
    if name is None:
        raise UsageError("no profile is current", cure="klog profile use NAME")
    found = visible_properties(profiles.named(name))
    output.show([{"name": key, "value": value} for key, value in sorted(found.items())])


@app.command("use")
def use_profile(name: Name, change: ChangeOptions) -> None:
    """Make a profile the current one: commands use it if nothing else says which cluster is meant.

    Examples:

        klog profile use prod
    """
    from klog.admin.profiles import write_profiles

    profiles = _profiles().using(name)
    if not change.dry_run:
        write_profiles(_path(), profiles)
    state = "would be current" if change.dry_run else "is current"
    done = f"{state}: {profiles.named(name).get('bootstrap.servers')}"
    change.conclude([Outcome(name, {"profile": name}, done)])


@app.command("remove")
def remove_profile(
    name: Name, change: ChangeOptions, yes: bool = flag("Remove without asking.", "--yes", "-y")
) -> None:
    """Remove a profile. Asks on a terminal; elsewhere it needs --yes.

    Examples:

        klog profile remove prod
    """
    from klog.admin.profiles import write_profiles

    left = _profiles().without(name)
    agree(f"Remove the profile {name}?", yes=yes or change.dry_run)
    if not change.dry_run:
        write_profiles(_path(), left)
    done = "would be removed" if change.dry_run else "removed"
    change.conclude([Outcome(name, {"profile": name}, done)])
