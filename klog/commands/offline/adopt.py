"""`klog adopt`: puts the topics of partition directories back into metadata that has lost them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klog.commands.offline.options import DryRun
from klog.commands.shared.messages import print_line, print_report
from klog.commands.shared.option_sets import argument, flag, valued
from klog.commands.shared.tables import show_json
from klog.commands.shared.terminal import agree, count_of
from klog.formats.errors import FormatError, KlogError, UsageError

if TYPE_CHECKING:
    from klog.cluster_metadata.forms import OnProblem
    from klog.config.broker import BrokerConfig
    from klog.config.topic_config_files import TopicConfigs
    from klog.server.startup.adoption import Adoption, AdoptionPlan


def adopt(
    directories: list[Path] | None = argument(
        "[DIR]...", "The broker's log directories, in place of log.dirs."
    ),
    config: Path | None = valued("FILE", "The broker's server.properties.", "--config", "-c"),
    options: list[str] | None = valued(
        "KEY=VALUE", "A config; it takes precedence over the file.", "--option", "-o"
    ),
    topic_configs: Path | None = valued("FILE", "The configs that the topics had."),
    topic_config: list[str] | None = valued(
        "TOPIC:KEY=VALUE", "A config that a topic had; it takes precedence over the file."
    ),
    allow_missing: bool = flag("Partitions without a directory or with only gzip copies come back empty."),
    skip_unknown: bool = flag("Leave out metadata records of a later Kafka, instead of stopping there."),
    dry_run: DryRun = False,
    as_json: bool = flag("Print one JSON object per topic.", "--json"),
    yes: bool = flag("Write without asking.", "--yes", "-y"),
) -> None:
    """Put the topics of partition directories back into metadata that has lost them.

    The broker must be stopped. A directory of a KRaft node (Kafka 3.3 to 4.x) gives topics, ids, configs,
    ACLs, users and quotas by its metadata log. The log stays; the old meta.properties becomes
    meta.properties.kraft. Give the same options as to `klog serve`. Each directory that the metadata
    does not know gets its topic back, with the topic's id and a leader epoch above that of its records. The
    command shows what it will write, and asks; without a terminal it needs --yes. Topics whose configs are
    not given keep all records until you set their retention again. A file of configs is a JSON object by
    topic, or what `klog configs describe --entity-type topics -o json` or kafka-configs has printed. The exit
    code is 1 if a directory stays without an owner.

    Examples:

    klog adopt --dry-run
    klog adopt /var/lib/kafka --topic-configs topics.json
    klog adopt /var/lib/kafka -o zookeeper.connect=zk:2181 --topic-config orders:retention.ms=-1
    klog adopt --config /etc/kafka/server.properties --yes
    """
    from klog.cluster_metadata.forms import raise_problem
    from klog.server.adoption_run import run_adoption

    given = _topic_configs(topic_configs, topic_config or ())
    on_problem = _named_once() if skip_unknown else raise_problem
    found = _config(
        None if config is None else str(config), (*(options or ()), *_log_dirs(directories or ()))
    )
    agreed: AdoptionPlan | None = None
    if not dry_run and not yes:
        agreed = run_adoption(
            found, dry_run=True, allow_missing=allow_missing, topic_configs=given, on_problem=on_problem
        )
        if agreed.adoptions or agreed.raised or agreed.taken_over:
            if not as_json:
                _show(agreed, dry_run=True)
            agree("Write this into the metadata?", yes=False)
    plan = run_adoption(
        found,
        dry_run=dry_run,
        allow_missing=allow_missing,
        topic_configs=given,
        agreed=agreed,
        on_problem=on_problem,
    )
    if as_json:
        show_json([_row(each, dry_run=dry_run) for each in plan.adoptions])
    else:
        _show(plan, dry_run=dry_run)
    _name_unused(given, plan)
    if plan.left:
        raise typer.Exit(1)


def _config(file: str | None, options: tuple[str, ...]) -> BrokerConfig:
    """The configs. Those of a KRaft node may have values that klog does not know: they are named."""
    from klog.config.keys import ConfigError
    from klog.server.startup.config_reading import read_config, read_kraft_config

    try:
        return read_config(file, options)
    except ConfigError:
        of_kraft = read_kraft_config(file, options)
        if of_kraft is None:
            raise
        found, left_out = of_kraft
        for error in left_out:
            print_report(f"a config of the KRaft node is left out: {error}")
        return found


def _named_once() -> OnProblem:
    """Names each record of a later Kafka once: with a question, the metadata log is read twice."""
    from klog.commands.offline.metadata_reading import leave_out_unknown

    named: set[str] = set()

    def leave_out(error: KlogError) -> None:
        if str(error) not in named:
            named.add(str(error))
            leave_out_unknown(error)

    return leave_out


def _log_dirs(directories: list[Path] | tuple[()]) -> list[str]:
    """The directories as a config. A store is created in the first one, so a wrong one is refused."""
    from klog.formats.names import FileKind
    from klog.storage.files.kafka_files import partition_directories
    from klog.storage.files.targets import is_partition

    for directory in directories:
        if "," in str(directory):
            raise UsageError("adopt: a log directory cannot have a comma in its name", file=str(directory))
        if not directory.is_dir() or (directory / FileKind.META_PROPERTIES).exists():
            continue  # run_adoption says what is wrong with it
        if is_partition(str(directory)):
            raise UsageError(
                "adopt: is a partition directory",
                file=str(directory),
                cure=f"name the log directory that holds it: {directory.absolute().parent}",
            )
        if not partition_directories(str(directory)):
            cure = "name the broker's log directories"
            raise UsageError("adopt: holds no partition directories", file=str(directory), cure=cure)
    return [f"log.dirs={','.join(os.path.abspath(each) for each in directories)}"] if directories else []


def _topic_configs(file: Path | None, options: list[str] | tuple[()]) -> TopicConfigs:
    """The configs of the file, and those of the options over them."""
    from klog.config.topic_config_files import parse_topic_configs
    from klog.storage.files.files import read_whole

    found: TopicConfigs = {}
    if file is not None:
        try:
            found = parse_topic_configs(read_whole(str(file)).decode("utf-8"))
        except UnicodeDecodeError:
            raise FormatError("is not text in UTF-8", file=str(file)) from None
        except FormatError as error:
            raise error.at(str(file)) from None
    for option in options:
        topic, colon, pair = option.partition(":")
        name, equals, value = pair.partition("=")
        if not (topic and colon and name and equals):
            raise UsageError(f"--topic-config {option}: an option is written TOPIC:KEY=VALUE")
        found.setdefault(topic, {})[name] = value
    return found


def _row(found: Adoption, *, dry_run: bool) -> dict[str, object]:
    return {
        "topic": found.assignment.topic,
        "topicId": None if found.assignment.topic_id is None else str(found.assignment.topic_id),
        "partitions": sorted(found.epochs),
        "emptyPartitions": list(found.empty),
        "configs": found.configs,
        "result": "would be adopted" if dry_run else "adopted",
    }


def _show(plan: AdoptionPlan, *, dry_run: bool) -> None:
    from klog.server.logs.unowned_logs import unowned_lines

    taken = plan.taken_over
    if taken is not None:
        what = "would be taken over" if dry_run else "taken over" if taken.is_new else "are there already"
        topics, partitions = count_of(taken.topics, "topic"), count_of(taken.partitions, "partition")
        print_line(f"from the KRaft metadata log: {topics} with {partitions} {what}")
        for remark in taken.remarks:
            print_report(remark)
    for each in plan.adoptions:
        _show_topic(each, "would be adopted" if dry_run else "adopted")
    for partition, state in plan.raised.items():
        print_line(
            f"{partition}: leader epoch {'would be ' if dry_run else ''}{state.leader_and_isr.leader_epoch}"
        )
    for line in unowned_lines(plan.left):
        print_report(line)
    if not (plan.adoptions or plan.raised or plan.left or taken):
        print_report("every partition directory has an owner")
    if plan.keeps_all_records and not dry_run:
        print_report(
            "start the broker, then set the topics' configs: they keep all records until retention.ms and"
            " retention.bytes are set"
        )


def _show_topic(found: Adoption, what: str) -> None:
    topic = found.assignment
    empty = f", of them empty: {', '.join(map(str, found.empty))}" if found.empty else ""
    topic_id = "no topic id" if topic.topic_id is None else f"topic id {topic.topic_id}"
    print_line(f"{topic.topic}: {count_of(len(found.epochs), 'partition')} {what}{empty} ({topic_id})")
    if found.configs is not None:
        pairs = ", ".join(f"{name}={value}" for name, value in sorted(found.configs.items()))
        print_line(f"    configs: {pairs or 'none, so those of the broker'}")


def _name_unused(given: TopicConfigs, plan: AdoptionPlan) -> None:
    """Say of which topics configs were given and not used."""
    unused = sorted(given.keys() - {each.assignment.topic for each in plan.adoptions if each.is_new})
    if unused:
        print_report(f"the given configs of {', '.join(unused)} are not used: no such topic was lost")
