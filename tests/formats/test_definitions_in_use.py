"""A broker and the tools run on the definitions: traces of them, and what follows from another definition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from klog.testing import BrokerProcess, broker
from tests.corpora import FIXTURES
from tests.waiting import eventually

PARTITION = FIXTURES / "k39-txn/logs/t-txn-0"
LOG = PARTITION / "00000000000000000006.log"

# Runs before anything of klog: notes which definition is asked for by which module.
TRACE = """
import atexit, json, os, sys
from klog.formats import _derived

class Noted(dict):
    asked = {}
    def __getitem__(self, name):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"].endswith(("fixed_fields", "record_fields", "text_format", "trace")):
            frame = frame.f_back
        self.asked.setdefault(name, set()).add(frame.f_globals["__name__"].removeprefix("klog."))
        return dict.__getitem__(self, name)

def write(path=os.environ.get("TRACE_FILE"), pid=os.getpid()):
    if path and pid == os.getpid():
        asked = {name: sorted(modules) for name, modules in Noted.asked.items()}
        loaded = "construct" in sys.modules
        with open(f"{path}.{pid}", "w") as file:
            json.dump({"asked": asked, "construct": loaded, "argv": sys.argv}, file)

_derived.FIELDS, _derived.LINES = Noted(_derived.FIELDS), Noted(_derived.LINES)
for name, run in json.loads(os.environ.get("OTHER_FIELDS", "{}")).items():
    _derived.FIELDS[name] = (tuple(run),)
from klog.formats import _records
_records.FIELDS = Noted(_records.FIELDS)
atexit.register(write)
"""

PAGE = Path(__file__).parents[2] / "docs/formats.md"
# The programs of the page's table that are no broker.
TOOLS = {
    "dump-segment FILE.log": ["dump-segment", LOG],
    "dump-segment FILE.index": ["dump-segment", LOG.with_suffix(".index")],
    "verify": ["verify", PARTITION],
    "rebuild-index --check": ["rebuild-index", "--check", PARTITION],
    "convert --dry-run": ["convert", "--dry-run", "--compression", "zstd", "--all", PARTITION],
    "recover --dry-run": ["recover", "--dry-run", PARTITION],
}
# Compiled modules are made of these, whether a program loads commits or not.
OF_COMMITS = {"GroupKey", "OffsetCommitValue"}


def documented() -> dict[str, set[str]]:
    """The definitions that the page names for each program."""
    section = PAGE.read_text().partition("| program | files |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines()]
    return {
        cells[0].strip(" `"): {name.strip() for cell in cells[1:] for name in cell.split(",") if name.strip()}
        for cells in rows[2:]
    }


def definitions(asked: Mapping[str, Any]) -> set[str]:
    """Names without versions, and without the parts that a definition has."""
    return {name.partition(".")[0].rstrip("01") for name in asked}


@pytest.fixture
def traced(tmp_path: Path) -> dict[str, str]:
    """An environment in which klog writes what it runs on to a file."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(TRACE)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TRACE_FILE": str(tmp_path / "trace")}


def traces(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    path = Path(environment["TRACE_FILE"])
    return [json.loads(file.read_text()) for file in path.parent.glob(f"{path.name}.*")]


def klog(*words: str | Path, env: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "klog", *map(str, words)], env=env, capture_output=True, check=False, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_the_page_has_each_program_once() -> None:
    assert list(documented()) == ["a broker", *TOOLS]


@pytest.mark.parametrize("program", TOOLS)
def test_a_tool_runs_on_the_definitions_of_the_page_without_loading_construct(
    program: str, traced: dict[str, str]
) -> None:
    status, text = klog(*TOOLS[program], env=traced)
    assert status == 0, text
    asked = set[str]().union(*(definitions(trace["asked"]) for trace in traces(traced)))
    assert asked - OF_COMMITS == documented()[program]
    assert not any(trace["construct"] for trace in traces(traced))


@pytest.mark.parametrize("suffix", [".snapshot", ".txnindex"])
def test_a_file_that_is_seldom_shown_is_parsed_by_construct_itself(
    suffix: str, traced: dict[str, str]
) -> None:
    status, _ = klog("dump-segment", LOG.with_suffix(suffix), env=traced)
    assert status == 0
    assert all(trace["construct"] for trace in traces(traced))


def client(running: BrokerProcess, *words: str, text: str = "") -> None:
    """A command that is no part of the trace."""
    done = subprocess.run(
        [sys.executable, "-m", "klog", *words, "--bootstrap-server", running.bootstrap_servers],
        input=text,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRACE_FILE")},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def consume_in_a_group_of_the_consumer_protocol(running: BrokerProcess) -> None:
    """The topics are chosen by a regular expression, which the broker stores with what it resolves to.

    What it commits is not one of the usual commits, which a compiled module reads and writes.
    """
    options = {
        "bootstrap.servers": running.bootstrap_servers,
        "group.id": "shipping",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    consumer.subscribe(["^ord.*"])
    found: list[Message] = []
    eventually(lambda: found.extend(consumer.consume(1, timeout=1)) or found)
    offset = TopicPartition(str(found[0].topic()), 0, 1, metadata="bis hierher, und für später")
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()


def test_a_broker_runs_on_the_definitions_without_loading_construct(
    traced: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "TRACE_FILE"):
        monkeypatch.setenv(name, traced[name])
    compacted = ("cleanup.policy=compact", "segment.bytes=2000", "min.cleanable.dirty.ratio=0.01")
    configs = [word for each in compacted for word in ("--config", each)]
    with broker({"log.cleaner.backoff.ms": 100}) as running:
        client(running, "topics", "create", "orders")
        client(running, "produce", "orders", text="a record\n")
        client(running, "produce", "orders", "--transactional-id", "loader", text="another\n")
        client(running, "consume", "orders", "--group", "billing")
        consume_in_a_group_of_the_consumer_protocol(running)
        client(running, "topics", "create", "prices", *configs)
        for _ in range(4):
            client(running, "produce", "prices", "--key", "k", "x" * 1500)
        cleaned = running.log_dirs[0] / "cleaner-offset-checkpoint"
        eventually(lambda: cleaned.exists() and "prices 0" in cleaned.read_text())
    (trace,) = [trace for trace in traces(traced) if "child" in trace["argv"][0]]
    assert not trace["construct"]
    asked = trace["asked"]
    assert definitions(asked) == documented()["a broker"]
    assert "coordinator.groups.records" in asked["OffsetCommitValue"]
    assert "coordinator.groups.consumer.records" in asked["ConsumerGroupMetadataValue"]
    assert "coordinator.transactions.records" in asked["TransactionLogValue"]
    assert "server.handlers.data.produce_screening" in asked["RecordBatch"]


@pytest.mark.parametrize(
    ("name", "codes", "names", "command"),
    [
        ("OffsetIndexEntry", ">iq", "relativeOffset position", ["rebuild-index", "--check"]),
        ("TimeIndexEntry", ">qq", "timestamp relativeOffset", ["rebuild-index", "--check"]),
        ("AbortedTxn", ">qqqqq", "version producerId firstOffset lastOffset lastStableOffset", ["verify"]),
        ("ProducerSnapshot", ">iIi", "version crc producers", ["verify"]),
        ("ControlKey", ">ih", "version type", ["verify"]),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_with_another_definition_a_tool_reads_other_fields(
    name: str, codes: str, names: str, command: list[str], traced: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(PARTITION, tmp_path / "t-txn-0")
    pure = traced | {"KLOG_PURE_PYTHON": "1"}
    with_definition = klog(*command, tmp_path / "t-txn-0", env=pure)
    with_other = klog(
        *command, tmp_path / "t-txn-0", env=pure | {"OTHER_FIELDS": json.dumps({name: [codes, names]})}
    )
    assert with_definition[0] == 0
    assert with_other != with_definition


def test_compiled_modules_with_other_numbers_are_not_imported(traced: dict[str, str]) -> None:
    pytest.importorskip("klog.kernel._kernel")
    fields = "baseOffset batchLength partitionLeaderEpoch magic crc attributes lastOffsetDelta baseTimestamp"
    fields += " maxTimestamp producerId producerEpoch baseSequence recordCount"
    other = {"RecordBatch": [">qiibIiiqqqhii", fields]}
    status, text = klog("dump-segment", LOG, env=traced | {"OTHER_FIELDS": json.dumps(other)})
    assert status != 0
    assert "build the compiled modules again" in text
