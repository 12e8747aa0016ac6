"""The options of `kafka-console-consumer` and of kcat, as options of `klog consume`.

With `--topic` or `--include`, `klog consume` reads as Kafka's console consumer: from the end, on and on. With
`-t` it reads as kcat: from the beginning, on and on. With topics as arguments it reads to the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from klog.commands.shared.option_sets import flag, option_set, valued
from klog.commands.shared.properties import given_properties, properties_file
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

_KCAT: Final = "As kcat (with -t it reads from the beginning, on and on)"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class Start(NamedTuple):
    """Where to start and to stop; without a start, the way of reading decides."""

    beginning: bool = False
    stored: bool = False
    last: int | None = None
    offset: int | None = None
    start_ms: int | None = None
    stop_ms: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether it says where to start."""
        return self._replace(stop_ms=None, stored=False) != Start()


@option_set("As kafka-console-consumer (with --topic or --include it reads from the end, on and on)")
class ConsoleOptions:
    """Options of the two other tools. `reading` and `formatter` say what they mean."""

    topic: list[str] | None = valued(
        "TOPIC", "The topic to read. --timeout-ms ends it after that time without a record."
    )
    include: str | None = valued(
        "REGEX", "Read all topics whose whole name matches.", "--include", "--whitelist"
    )
    from_beginning: bool = flag("Start at the first record.")
    max_messages: int | None = valued("N", "Stop after N records.", "--max-messages", "-c", least=-1)
    properties: list[str] | None = valued(
        "KEY=VALUE",
        "What to print: print.key, print.timestamp, print.offset, print.partition, print.headers, "
        "print.value (true or false), key.separator, line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer (repeatable).",
        "--property",
        "--formatter-property",
    )
    formatter_config: Path | None = valued("FILE", "A file of such properties.")
    formatter: str | None = valued("CLASS", "DefaultMessageFormatter or NoOpMessageFormatter.")
    key_deserializer: str | None = valued("CLASS", "As --property key.deserializer.")
    value_deserializer: str | None = valued("CLASS", "As --property value.deserializer.")
    skip_message_on_error: bool = flag("Go on after a record that a deserializer rejects.")
    consumer_property: list[str] | None = valued(
        "KEY=VALUE",
        "A property of Kafka's consumer: isolation.level, auto.offset.reset, those of groups, and as in "
        "--command-config.",
    )
    consumer_config: Path | None = valued("FILE", "A file of such properties.", "--consumer.config")
    enable_systest_events: bool = flag("", hidden=True)
    kcat_topic: list[str] | None = valued("TOPIC", "The topic to read.", "-t", panel=_KCAT)
    offset: list[str] | None = valued(
        "OFFSET",
        "Where to start: beginning, end (Kafka: earliest, latest), an offset, -N for the last N, s@TIME "
        "for the first record of a time; e@TIME says where to stop (repeatable).",
        "--offset",
        "-o",
        panel=_KCAT,
    )
    exit_at_end: bool = flag("Stop at the end.", "-e", panel=_KCAT)
    consumer_mode: bool = flag("", "-C", hidden=True)
    unbuffered: bool = flag("", "-u", hidden=True)
    quiet: bool = flag("", "-q", hidden=True)

    @property
    def as_kafka(self) -> bool:
        """Whether to read as Kafka's console consumer."""
        return bool(self.topic or self.include)

    @property
    def as_kcat(self) -> bool:
        """Whether to read as kcat."""
        return bool(self.kcat_topic)

    def topics(self, arguments: Sequence[str]) -> list[str]:
        """The topics to read, none if `include` says it. Raises UsageError if they are named in two ways."""
        ways = (arguments, self.topic or (), self.kcat_topic or (), (self.include,) if self.include else ())
        given = [way for way in ways if way]
        if not given:
            raise missing("TOPIC")
        if len(given) > 1:
            raise UsageError("topics are named in two ways", cure="TOPIC..., --topic, -t or --include")
        return [] if self.include else list(dict.fromkeys(str(topic) for topic in given[0]))

    def consumer_properties(self) -> dict[str, str]:
        """The properties of Kafka's consumer. Raises UsageError."""
        found = properties_file(self.consumer_config)
        return found | given_properties("--consumer-property", self.consumer_property)

    def formatter_properties(self) -> dict[str, str]:
        """The properties that say what to print."""
        found = properties_file(self.formatter_config)
        found |= given_properties("--property", self.properties)
        if self.key_deserializer is not None:
            found["key.deserializer"] = self.key_deserializer
        if self.value_deserializer is not None:
            found["value.deserializer"] = self.value_deserializer
        return found

    def start(self, reset: str | None, now: datetime) -> Start:
        """Where to start and to stop; `reset` is the consumer's auto.offset.reset. Raises UsageError."""
        if self.from_beginning and self.offset:
            raise UsageError("--from-beginning and --offset cannot be given together")
        if self.from_beginning and reset not in (None, "earliest"):
            raise UsageError(f"--from-beginning contradicts auto.offset.reset={reset}")
        if reset not in (None, "earliest", "latest", "none"):
            raise UsageError(f"auto.offset.reset={reset} is unknown", cure="earliest or latest")
        start = Start()
        for text in self.offset or ():
            start = _with_offset(start, text, now)
        if self.from_beginning or (reset == "earliest" and not self.offset):
            return start._replace(beginning=True)
        return start


def _with_offset(start: Start, text: str, now: datetime) -> Start:
    from klog.commands.shared.arguments import parse_time

    word = text.lower()
    if word in ("beginning", "earliest"):
        return start._replace(beginning=True)
    if word in ("end", "latest"):
        return start._replace(last=0)
    if word == "stored":
        return start._replace(stored=True)
    if word.startswith("s@"):
        return start._replace(start_ms=parse_time("--offset s@", text[2:], now))
    if word.startswith("e@"):
        return start._replace(stop_ms=parse_time("--offset e@", text[2:], now))
    if _NUMBER.fullmatch(text):
        return start._replace(offset=int(text))
    if text.startswith("-") and _NUMBER.fullmatch(text[1:]):
        return start._replace(last=int(text[1:]))
    raise UsageError(
        f"--offset {text!r} is not an offset",
        cure="beginning, end, earliest, latest, an offset, -N for the last N, s@TIME or e@TIME",
    )
