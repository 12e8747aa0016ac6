"""`klog produce --transactional-id`, `klog consume --isolation` and `klog transactions` on real clusters."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from tests.commands.asking import keeps_to_the_rule
from tests.commands.clusters import STARTERS, WITH_TRANSACTIONS
from tests.commands.running import Run
from tests.waiting import eventually

RUN = "from klog.commands.main import main; main()"
COMMITTED = ("--isolation", "read_committed")

_numbers = itertools.count()


@pytest.fixture(scope="module", params=WITH_TRANSACTIONS)
def cluster(request, tmp_path_factory) -> Iterator[str]:
    with STARTERS[request.param](request, tmp_path_factory.mktemp(request.param)) as bootstrap:
        yield bootstrap


@pytest.fixture
def name() -> str:
    """A transactional id."""
    return f"loader-{next(_numbers)}"


def read(klog: Run, topic: str, *words: object) -> list[str]:
    done = klog("consume", topic, *words)
    assert done.code == 0, done.err
    return done.out.split()


@contextmanager
def writing(cluster: str, topic: str, *words: str) -> Iterator[subprocess.Popen]:
    """`klog produce` in a process of its own, whose stdin is open."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "produce", topic, *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KLOG_BOOTSTRAP_SERVER": cluster},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stderr):
            pipe.close()


def feed(process: subprocess.Popen, *lines: str) -> None:
    process.stdin.write("".join(f"{line}\n" for line in lines).encode())
    process.stdin.flush()


def test_all_records_of_a_run_are_one_transaction(klog: Run, topic, name):
    done = klog("produce", topic, "a", "b", "c", "--transactional-id", name)
    assert done.code == 0
    assert done.err.endswith(", 3 committed in 1 transaction\n")
    eventually(lambda: read(klog, topic, *COMMITTED) == ["a", "b", "c"])  # Kafka writes markers later


def test_transactions_end_after_a_number_of_records(klog: Run, topic, name):
    numbers = [str(number) for number in range(7)]
    done = klog("produce", topic, *numbers, "--transactional-id", name, "--transaction-records", 3)
    assert ", 7 committed in 3 transactions" in done.err
    eventually(lambda: read(klog, topic, *COMMITTED) == numbers)


def test_what_is_open_is_seen_by_uncommitted_readers_only(klog: Run, cluster, topic, name):
    with writing(cluster, topic, "--transactional-id", name) as process:
        feed(process, "a", "b")
        eventually(lambda: read(klog, topic) == ["a", "b"])
        assert read(klog, topic, *COMMITTED) == []
        process.stdin.close()
        assert process.wait(90) == 0
    eventually(lambda: read(klog, topic, *COMMITTED) == ["a", "b"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_aborts(klog: Run, cluster, topic, name, number):
    with writing(cluster, topic, "--transactional-id", name) as process:
        feed(process, "a", "b")
        eventually(lambda: read(klog, topic) == ["a", "b"])
        process.send_signal(number)
        _, err = process.communicate(timeout=90)
        assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "the transaction with 2 records was aborted" in err.decode()
    assert klog("produce", topic, "c", "--transactional-id", name).code == 0
    eventually(lambda: read(klog, topic, *COMMITTED) == ["c"])
    assert read(klog, topic) == ["a", "b", "c"]


def test_a_refused_record_aborts(klog: Run, topic, name, tmp_path):
    file = tmp_path / "lines"
    file.write_text("small\n" + "x" * 3_000_000 + "\n")
    done = klog("produce", topic, "--file", file, "--transactional-id", name)
    assert done.code == 1
    assert "MESSAGE_TOO_LARGE" in done.err
    assert "was aborted" in done.err
    assert klog("produce", topic, "after", "--transactional-id", name).code == 0
    eventually(lambda: read(klog, topic, *COMMITTED) == ["after"])


def test_a_line_that_cannot_be_read_aborts(klog: Run, topic, name, tmp_path):
    file = tmp_path / "lines"
    file.write_text('{"value": "a"}\n{"value":\n')
    done = klog("produce", topic, "--file", file, "-f", "jsonl", "--transactional-id", name)
    assert done.code == 1
    assert "line 2" in done.err
    assert klog("produce", topic, "after", "--transactional-id", name).code == 0
    eventually(lambda: read(klog, topic, *COMMITTED) == ["after"])


def test_a_later_producer_fences_an_earlier_one(klog: Run, cluster, topic, name):
    with writing(cluster, topic, "--transactional-id", name) as process:
        feed(process, "a")
        eventually(lambda: read(klog, topic) == ["a"])
        assert klog("produce", topic, "b", "--transactional-id", name).code == 0
        process.stdin.close()
        assert process.wait(90) == 1
        assert b"another producer uses the same transactional id" in process.stderr.read()
    eventually(lambda: read(klog, topic, *COMMITTED) == ["b"])


def test_input_that_waits_is_committed_by_its_age(klog: Run, cluster, topic, name):
    words = ("--transactional-id", name, "--transaction-duration-ms", "60000")
    with writing(cluster, topic, *words) as process:
        feed(process, "a")
        eventually(lambda: read(klog, topic, *COMMITTED) == ["a"])
        feed(process, "b")
        eventually(lambda: read(klog, topic, *COMMITTED) == ["a", "b"])


def test_transactions_are_listed_and_described(klog: Run, cluster, topic, name):
    with writing(cluster, topic, "--transactional-id", name) as process:
        feed(process, "a", "b")
        eventually(lambda: read(klog, topic) == ["a", "b"])
        rows = [json.loads(line) for line in klog("transactions", "list", "--json").out.splitlines()]
        (row,) = (row for row in rows if row["transactionalId"] == name)
        assert row["transactionState"] == "Ongoing"
        found = json.loads(klog("transactions", "describe", name, "--json").out)
        assert (found["transactionState"], found["topicPartitions"]) == ("Ongoing", [f"{topic}-0"])
        assert (found["producerId"], found["transactionTimeoutMs"]) == (row["producerId"], 60_000)
        assert found["transactionDurationMs"] >= 0
        words = ("--topic", topic, "--partition", 0)
        (producer,) = map(
            json.loads, klog("transactions", "describe-producers", *words, "--json").out.splitlines()
        )
        assert (producer["producerId"], producer["currentTransactionStartOffset"]) == (row["producerId"], 0)
        assert klog("transactions", "find-hanging", *words, "--max-transaction-timeout", 0).out == ""
        everywhere = klog("transactions", "find-hanging", "--max-transaction-timeout", 0)
        assert (everywhere.code, everywhere.out) == (0, ""), everywhere.err
        assert name in klog("transactions", "list").out
        process.stdin.close()
        assert process.wait(90) == 0
    eventually(lambda: "CompleteCommit" in klog("transactions", "describe", name).out)
    assert klog("transactions", "list", "--duration-filter", 3_600_000).out == ""


def test_names_that_do_not_exist_are_code_1(klog: Run, topic):
    unknown = klog("transactions", "describe", "no-such-id")
    assert (unknown.code, unknown.out) == (1, "")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in unknown.err
    words = ("--topic", topic, "--partition", 0)
    nothing = klog("transactions", "abort", *words, "--start-offset", 7, "--yes")
    assert nothing.code == 1
    assert f"no transaction is open at offset 7 of {topic}-0" in nothing.err
    assert klog("transactions", "describe-producers", "--topic", "no-such-topic", "--partition", 0).code == 1


def test_a_transaction_is_aborted_in_one_partition(klog: Run, cluster, topic, name):
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "a")
    assert producer.flush(60) == 0
    assert read(klog, topic, *COMMITTED) == []
    words = ("--topic", topic, "--partition", 0, "--start-offset", 0)
    dry = klog("transactions", "abort", *words, "--dry-run")
    assert f"{topic}-0: the transaction of producer" in dry.err
    # Brokers tell what a producer has open, and nothing after the abort.
    described = ("transactions", "describe-producers", "--topic", topic, "--partition", 0, "-o", "json")
    keeps_to_the_rule(klog, "transactions abort", [f"{topic}:0:0"], lambda: klog(*described).out)
    assert klog("produce", topic, "b").code == 0
    eventually(lambda: read(klog, topic, *COMMITTED) == ["b"])


@pytest.mark.parametrize("text", ["t", "t:0", "t:0:", "t::1", ":0:1", "t:0:-1", "t:x:1"])
def test_where_a_transaction_begins_is_a_partition_with_an_offset(klog: Run, text):
    refused = klog("transactions", "abort", text)
    assert (refused.code, f"'{text}' is not TOPIC:PARTITION:OFFSET" in refused.err) == (2, True)
    assert klog("transactions", "abort", "t:0:1", "--partition", 0).code == 2


def test_a_group_of_committed_readers_waits_for_the_end(klog: Run, cluster, topic, name):
    group = ("--group", f"readers-of-{topic}", *COMMITTED)
    with writing(cluster, topic, "--transactional-id", name) as process:
        feed(process, "a")
        eventually(lambda: read(klog, topic) == ["a"])
        assert read(klog, topic, *group) == []
        process.stdin.close()
        assert process.wait(90) == 0
    eventually(lambda: read(klog, topic, *COMMITTED) == ["a"])
    assert read(klog, topic, *group) == ["a"]
    assert read(klog, topic, *group) == []


def test_partitions_without_a_leader_are_left_out_of_the_search_for_hanging_transactions(three, on_three):
    words = ("--replica-assignment", ",".join("012012"))
    assert on_three("topics", "create", "led-by-each", *words).code == 0
    three.kill(2)
    searched = ("transactions", "find-hanging", "--topic", "led-by-each")
    eventually(lambda: "have no leader: led-by-each-2, led-by-each-5" in on_three(*searched).err)
    assert (on_three(*searched).code, on_three(*searched).out) == (0, "")
