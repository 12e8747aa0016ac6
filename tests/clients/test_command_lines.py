"""The same command lines with Kafka's tools and with klog's commands: the same stdout, the same success."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands.clusters import STARTERS
from tests.commands.running import Run, runner
from tests.peers.tool_server import ToolServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

TOPICS = ("org.apache.kafka.tools.TopicCommand", "topics")
CONFIGS = ("kafka.admin.ConfigCommand", "configs")
PRODUCER = ("kafka.tools.ConsoleProducer", "produce")
CONSUMER = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "consume")

_numbers = itertools.count()


class Ended(NamedTuple):
    """Whether a program succeeded, and what it wrote on stdout."""

    succeeded: bool
    out: str


class Both:
    """Runs a command line with Kafka's tool and with klog."""

    def __init__(self, tools: ToolServer, klog: Run, bootstrap: str, monkeypatch, work: Path) -> None:
        self._tools = tools
        self._klog = klog
        self._at = ("--bootstrap-server", bootstrap)
        self._monkeypatch = monkeypatch
        self._work = work

    def kafka(self, tool: tuple[str, str], *words: object, stdin: bytes = b"") -> Ended:
        done = self._tools.run(tool[0], *self._at, *words, stdin=stdin)
        return Ended(done.status == 0, done.out)

    def klog(self, tool: tuple[str, str], *words: object, stdin: bytes = b"") -> Ended:
        file = self._work / "stdin"
        file.write_bytes(stdin)
        with file.open("rb") as opened:
            self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(opened))
            done = self._klog(tool[1], *self._at, *words)
        assert "Traceback" not in done.err
        return Ended(done.code == 0, done.out)

    def together(self, tool: tuple[str, str], *words: object) -> tuple[Ended, Ended]:
        """Run a line that changes nothing with Kafka's tool and with klog, at the same time."""
        with ThreadPoolExecutor(1) as beside:
            kafka = beside.submit(self.kafka, tool, *words)
            klog = self.klog(tool, *words)
            return kafka.result(), klog

    def same(self, tool: tuple[str, str], *words: object) -> Ended:
        """Run a line that changes nothing, and compare."""
        kafka, klog = self.together(tool, *words)
        assert klog.succeeded == kafka.succeeded
        if kafka.succeeded:  # errors are klog's own
            assert in_order(klog.out) == in_order(kafka.out)
        return klog

    def same_change(self, tool: tuple[str, str], *words: object, stdin: bytes = b"") -> tuple[str, str]:
        """Run a line with a topic TOPIC for each of the two, and compare; gives both names."""
        number = next(_numbers)
        names = (f"by-kafka-{number}", f"by-klog-{number}")
        found = []
        for run, name in zip((self.kafka, self.klog), names, strict=True):
            ended = run(tool, *(str(word).replace("TOPIC", name) for word in words), stdin=stdin)
            found.append(Ended(ended.succeeded, ended.out.replace(name, "TOPIC")))
        kafka, klog = found
        assert klog.succeeded == kafka.succeeded
        if kafka.succeeded:
            assert klog.out == kafka.out
        return names


def in_order(out: str) -> list[str]:
    """The topics of an output, sorted: Kafka's tools show them in the order of a hash table."""
    return sorted(re.split(r"(?m)^(?=\t)" if out.startswith("\t") else r"(?m)^(?=\S)", out))


@pytest.fixture(scope="module", params=["klog", "kafka3"])
def bootstrap(request, tmp_path_factory) -> Iterator[str]:
    with STARTERS[request.param](request, tmp_path_factory.mktemp(request.param)) as address:
        yield address


@pytest.fixture
def both(kafka3, tools_of, bootstrap, capfd, monkeypatch, tmp_path) -> Both:
    return Both(tools_of(kafka3), runner(capfd, monkeypatch), bootstrap, monkeypatch, tmp_path)


@pytest.fixture
def topics(both) -> str:
    """A prefix P with topics `P-plain` of two partitions, `P-min` with min.insync.replicas=2, and `P.own`."""
    prefix = f"t{next(_numbers)}"
    create = ("--create", "--topic")
    assert both.klog(TOPICS, *create, f"{prefix}-plain", "--partitions", 2).succeeded
    assert both.klog(TOPICS, *create, f"{prefix}-min", "--config", "min.insync.replicas=2").succeeded
    own = ("retention.ms=77", "cleanup.policy=compact,delete", "segment.ms=8888", "max.message.bytes=999")
    words = [each for config in own for each in ("--config", config)]
    assert both.klog(TOPICS, *create, f"{prefix}.own", *words).succeeded
    return prefix


def test_topics_are_listed_and_described_alike(both, topics) -> None:
    of_all = ("--topic", f"{topics}.*")
    assert both.same(TOPICS, "--list", "--exclude-internal").out
    assert both.same(TOPICS, "--list", "--topic", f"{topics}-plain,{topics}.own").out.count("\n") == 2
    assert both.same(TOPICS, "--list", "--topic", "no-such-topic").out == "\n"
    assert both.same(TOPICS, "--describe", *of_all).out.count("\n") == 7
    assert both.same(TOPICS, "--describe", "--topics-with-overrides", *of_all).out
    assert both.same(TOPICS, "--describe", "--under-min-isr-partitions", *of_all).out.count("\n") == 1
    assert both.same(TOPICS, "--describe", "--at-min-isr-partitions", *of_all).out.count("\n") == 3
    assert both.same(TOPICS, "--describe", "--under-replicated-partitions", *of_all).out == ""
    assert both.same(TOPICS, "--describe", "--unavailable-partitions", *of_all).out == ""


def test_topics_that_do_not_exist_are_treated_alike(both) -> None:
    for action in (("--describe",), ("--delete",), ("--alter", "--partitions", 2)):
        assert not both.same(TOPICS, *action, "--topic", "no-such-topic").succeeded
    assert both.same(TOPICS, "--describe", "--topic", "no-such-topic", "--if-exists").out == ""
    assert both.same(TOPICS, "--delete", "--topic", "no-such-topic", "--if-exists").succeeded
    assert not both.same(TOPICS, "--list", "--describe").succeeded
    assert not both.same(TOPICS, "--create").succeeded


def test_topics_are_created_changed_and_deleted_alike(both) -> None:
    create = ("--create", "--topic", "TOPIC", "--partitions", 2, "--replication-factor", 1)
    by_kafka, by_klog = both.same_change(TOPICS, *create, "--config", "retention.ms=5")
    for name in (by_kafka, by_klog):
        assert not both.same(TOPICS, "--create", "--topic", name).succeeded
        assert both.same(TOPICS, "--create", "--topic", name, "--if-not-exists").out == ""
    described = both.kafka(TOPICS, "--describe", "--topic", by_klog).out
    broker = re.search(r"Leader: (\d+)", described)[1]
    alter = ("--alter", "--topic")
    every = ",".join([broker] * 3)
    for run, name in ((both.kafka, by_kafka), (both.klog, by_klog)):
        assert run(TOPICS, *alter, name, "--partitions", 3, "--replica-assignment", every) == (True, "")
        assert run(TOPICS, *alter, name, "--partitions", 1).succeeded is False
    shown = [both.kafka(TOPICS, "--describe", "--topic", name).out for name in (by_kafka, by_klog)]
    texts = [re.sub("TopicId: [^\t]*", "", text).replace(name, "TOPIC") for text, name in zip(
        shown, (by_kafka, by_klog), strict=True)]  # fmt: skip
    assert texts[0] == texts[1]
    for run, name in ((both.kafka, by_kafka), (both.klog, by_klog)):
        assert run(TOPICS, "--delete", "--topic", name) == (True, "")
    eventually(lambda: both.kafka(TOPICS, "--list", "--topic", f"{by_kafka},{by_klog}").out == "\n")


def test_configs_are_described_alike(both, topics) -> None:
    own = ("--entity-type", "topics", "--entity-name", f"{topics}.own")
    assert both.same(CONFIGS, "--describe", *own).out.count("\n") == 5
    assert both.same(CONFIGS, "--describe", *own, "--all").out.count("\n") > 30
    assert both.same(CONFIGS, "--describe", "--topic", f"{topics}-plain").out.count("\n") == 1
    assert both.same(CONFIGS, "--describe", "--entity-type", "topics").out.count("configs for topic") >= 3
    assert both.same(CONFIGS, "--describe", "--entity-type", "brokers").out.count("\n") >= 2
    assert both.same(CONFIGS, "--describe", "--broker-defaults").out
    assert not both.same(CONFIGS, "--describe", "--topic", "no-such-topic").succeeded
    assert not both.same(CONFIGS, "--describe").succeeded


def test_configs_of_a_broker_and_of_its_loggers_are_described_alike(both, topics) -> None:
    described = both.klog(TOPICS, "--describe", "--topic", f"{topics}-plain").out
    broker = re.search(r"Leader: (\d+)", described)[1]
    assert both.same(CONFIGS, "--describe", "--broker", broker, "--all").out.count("\n") > 200
    assert both.same(CONFIGS, "--describe", "--broker-logger", broker).out


def test_configs_are_changed_alike(both, topics, tmp_path) -> None:
    file = tmp_path / "own.properties"
    file.write_text("retention.bytes=9\nsegment.bytes=2000\n")
    entity = ("--alter", "--entity-type", "topics", "--entity-name", f"{topics}-plain")
    lists = "cleanup.policy=[compact,delete],retention.ms=7"
    for words in (
        ("--add-config", lists),
        ("--add-config-file", file),
        ("--add-config", "retention.ms=8", "--delete-config", "cleanup.policy", "--force"),
        ("--delete-config", "max.message.bytes"),
        ("--add-config", "no.such.config=1"),
        ("--add-config", "retention.ms=soon"),
    ):
        # The second run of a deletion finds nothing to delete: set it again.
        ended = both.kafka(CONFIGS, *entity, *words)
        if "cleanup.policy" in words:
            both.klog(CONFIGS, *entity, "--add-config", lists)
        assert both.klog(CONFIGS, *entity, *words) == (ended if ended.succeeded else (False, ""))
    defaults = ("--alter", "--entity-type", "brokers", "--entity-default")
    assert both.same(CONFIGS, *defaults, "--add-config", "log.cleaner.threads=2").succeeded
    for run in (both.kafka, both.klog):
        both.klog(CONFIGS, *defaults, "--add-config", "log.cleaner.threads=2")
        # The broker learns of it after the answer, and refuses to delete what it does not know.
        eventually(
            lambda run=run: run(CONFIGS, *defaults, "--delete-config", "log.cleaner.threads").succeeded
        )


PRODUCED = [
    ((), b"one\ntwo\r\nthree\rfour"),
    (("--property", "parse.key=true", "--sync"), b"k\tv\n\tno key\nk2\t\n"),
    (
        ("--property", "parse.key=true", "--property", "key.separator=--", "--property", "null.marker=NIL"),
        b"k--v\nNIL--v\nk--NIL\n",
    ),
    (
        ("--property", "parse.headers=true", "--property", "parse.key=true", "--property", "null.marker=N"),
        b"a:1,b:N\tk\tv\nN\tk\tv\na:,,\tk\tv\nc:x:y\tN\tN\n",
    ),
    (
        ("--property", "parse.headers=true", "--property", "headers.delimiter=|", "--property",
         "headers.separator=;", "--property", "headers.key.separator==", "--compression-codec", "lz4"),
        b"a=1;b=2|v\n",
    ),
    (
        ("--property", "parse.key=true", "--property", "parse.headers=true",
         "--property", "ignore.error=true"),
        b"no separators\na\tk\tv\nh:1\tk\n",
    ),
    (("--property", "parse.key=true"), b"k\tv\nno separator\n"),
    (("--property", "parse.headers=true"), b"no colon\tv\n"),
    (("--property", "null.marker=,"), b"v\n"),
    (("--compression-codec", "--request-required-acks", "1", "--batch-size", "10"), b"v\n"),
    (("--producer-property", "compression.type=zstd", "--producer-property", "acks=1"), b"v\n"),
    (("--compression-codec", "rar"), b"v\n"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "stdin"), PRODUCED)
def test_lines_are_written_alike(both, words, stdin) -> None:
    number = next(_numbers)
    names = (f"w{number}-kafka", f"w{number}-klog")
    for name in names:
        assert both.klog(TOPICS, "--create", "--topic", name).succeeded
    kafka = both.kafka(PRODUCER, "--topic", names[0], *words, stdin=stdin)
    klog = both.klog(PRODUCER, "--topic", names[1], *words, stdin=stdin)
    assert klog == kafka
    everything = ("-f", "%k|%s|%h|%K|%S", "--null", "(null)")
    written = [both.klog(CONSUMER, name, *everything).out for name in names]
    assert written[1] == written[0]


CONSUMED = [
    ("--offset", "earliest"),
    ("--from-beginning", "--max-messages", 2),
    ("--offset", 1, "--max-messages", 1, "--property", "print.offset=true"),
    ("--offset", "latest"),
    (),
    ("--from-beginning", *(each for name in ("timestamp", "partition", "offset", "headers", "key")
                           for each in ("--property", f"print.{name}=true"))),
    ("--from-beginning", "--property", "print.key=true", "--property", "print.value=false"),
    ("--from-beginning", "--property", "print.value=false"),
    ("--from-beginning", "--property", "print.headers=true", "--property", r"key.separator=\t", "--property",
     "headers.separator=;", "--property", "null.literal=N", "--property", "line.separator=!"),
    ("--from-beginning", "--key-deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
     "--property", "print.key=true"),
    ("--from-beginning", "--max-messages", 1, "--property",
     "value.deserializer=org.apache.kafka.common.serialization.ShortDeserializer"),
    ("--from-beginning", "--isolation-level", "read_committed"),
    ("--from-beginning", "--formatter", "kafka.tools.NoOpMessageFormatter"),
    ("--from-beginning", "--offset", 1),
    ("--offset", "middle"),
    ("--from-beginning", "--consumer-property", "auto.offset.reset=latest"),
]  # fmt: skip


@pytest.fixture(scope="module")
def filled(kafka3, tools_of, bootstrap) -> str:
    """A topic with records of two bytes, null keys and values, and headers, written by Kafka's tool."""
    name = "filled"
    at = ("--bootstrap-server", bootstrap)
    lines = b"a:1,b:N\tk0\tv0\nN\tN\tv1\nN\tk2\tN\nc:3\tk3\tv3\n"
    marks = [
        each
        for one in ("parse.key=true", "parse.headers=true", "null.marker=N")
        for each in ("--property", one)
    ]
    tools = tools_of(kafka3)
    assert tools.run(TOPICS[0], *at, "--create", "--topic", name).status == 0
    done = tools.run(PRODUCER[0], *at, "--topic", name, *marks, stdin=lines)
    assert done.status == 0, done.err
    return name


def assert_read_alike(both: Both, timeout_ms: int, *words: object) -> None:
    """Both print the same before no record has come for so long. On a busy machine one may need longer."""
    for each_ms in (timeout_ms, 8 * timeout_ms):
        kafka, klog = both.together(CONSUMER, "--timeout-ms", each_ms, *words)
        if klog == kafka:
            return
    assert klog == kafka


@pytest.mark.parametrize("words", CONSUMED)
def test_a_partition_is_read_alike(both, filled, words) -> None:
    assert_read_alike(both, 4_000, "--topic", filled, "--partition", 0, *words)


@pytest.mark.parametrize("words", [("--topic", "filled"), ("--include", "fil+ed")])
def test_topics_are_read_alike(both, filled, words) -> None:
    assert_read_alike(both, 8_000, *words, "--from-beginning", "--property", "print.key=true")
