"""`klog serve`: runs a broker that speaks Kafka's protocol and keeps its data in Kafka's files."""

from __future__ import annotations

import logging
from pathlib import Path

import typer

from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.moment_options import MomentOptions
from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.usage import missing
from klog.formats.errors import KlogError, UsageError


def serve(
    directories: list[str] | None = argument(
        "[DIR]...", "With --read-only: log directories, or what holds such; or a backup repository."
    ),
    read_only: bool = flag(
        "Serve the directories of dead brokers or of a backup, and change nothing in them."
    ),
    no_check: bool = flag("With --read-only: do not look for damage in all segments, in the background."),
    *,
    moment: MomentOptions,
    keys: KeyOptions,
    config: Path | None = valued("FILE", "A server.properties file as for Kafka.", "--config", "-c"),
    options: list[str] | None = valued(
        "KEY=VALUE", "A config of Kafka; it takes precedence over the file.", "--option", "-o"
    ),
    metrics_port: int | None = optional(
        None, "The port for Prometheus metrics, on 127.0.0.1.", least=0, most=65535
    ),
    json_logs: bool = flag("Log one JSON object per line."),
    quiet: bool = flag("Log only warnings and errors.", "--quiet", "-q"),
) -> None:
    """Run a broker until it is interrupted.

    Without arguments it is a single broker on 127.0.0.1:9092, with its data in ./klog-data and no other
    process. With zookeeper.connect it is a member of that cluster.

    With --read-only it serves what is in directories to consumers: of one broker, of several (the replicas
    are merged), or of a backup (gzipped copies and object stores, too). Writes are refused. Offsets that
    groups commit are kept until the stop. Damaged places are logged: those at the ends of logs at the start,
    others while it serves.

    A repository of klog backup is served as it was at a moment (--at, --backup or --offsets; otherwise the
    newest backup): what klog restore would give, without a restore. Records are read when they are asked for.

    Examples:

    klog serve
    klog serve --config /etc/kafka/server.properties
    klog serve -o listeners=PLAINTEXT://127.0.0.1:9095 -o log.dirs=/var/lib/klog --metrics-port 9404
    klog serve --read-only /mnt/broker1/kafka-logs /mnt/broker2/kafka-logs
    klog serve --read-only s3://backups/cluster --at 2026-11-24T10:00:00Z
    """
    from klog.commands.shared.exit_codes import exit_code
    from klog.server.run import Launch, run

    if directories and not read_only:
        cure = "usage: klog serve [OPTIONS]; --config takes a file; with --read-only it serves directories"
        raise UsageError(f"serve: unexpected argument {directories[0]}", cure=cure)
    if no_check and not read_only:
        raise UsageError("serve: --no-check is for --read-only", cure="usage: klog serve --read-only DIR...")
    if moment != MomentOptions() and not read_only:
        raise UsageError("serve: --at, --backup, --offsets and --topic are for --read-only REPOSITORY")
    if read_only and not directories:
        raise missing("DIR")
    config_file = None if config is None else str(config)
    opening = None
    if directories:
        from klog.commands.servers.read_only import opening_of

        opening = opening_of(directories, moment, keys, config_file, options or ())
    launch = Launch(
        opening=opening,
        searches_damage=not no_check,
        config_file=config_file,
        options=tuple(options or ()),
        metrics_port=metrics_port,
        json_logs=json_logs,
        quiet=quiet,
    )
    try:
        run(launch)
    except KlogError as error:
        if not json_logs:
            raise
        # The log consists of JSON objects, so the last error must be one, too.
        logging.getLogger(__name__).critical("%s", error)
        raise typer.Exit(exit_code(error)) from None
