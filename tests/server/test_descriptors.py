"""A broker with a low limit of open files refuses partitions beyond it, and serves on."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.swap.clients import Writer, Written, read
from tests.swap.klog_process import KlogBroker

TIMEOUT_S: Final = 60


def limited(work: Path, most: int) -> KlogBroker:
    before = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))"
    return KlogBroker(work / "klog", before=before)


def wait(futures: dict) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def test_partitions_beyond_the_limit_are_refused_and_the_broker_serves_on(tmp_path: Path) -> None:
    acknowledged: Written = {}
    with limited(tmp_path, 256) as klog:
        klog.start()
        admin = AdminClient({"bootstrap.servers": klog.bootstrap, "log_level": 0})
        wait(admin.create_topics([NewTopic("kept", 5, 1)]))
        with pytest.raises(KafkaException) as refused:
            wait(admin.create_topics([NewTopic("large", 200, 1)]))
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
        with pytest.raises(KafkaException) as refused:
            wait(admin.create_partitions([NewPartitions("kept", 200)]))
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
        # Together they are too many.
        many = admin.create_topics([NewTopic(f"many-{number}", 10, 1) for number in range(20)])
        made = [name for name, future in many.items() if future.exception(TIMEOUT_S) is None]
        assert 0 < len(made) < 20
        writer = Writer(klog.bootstrap, acknowledged)
        writer.write("kept", b"value")
        writer.finish()
        klog.stop()
        # A lower limit is named before anything is touched.
    with limited(tmp_path, 64) as klog:
        klog.spawn()
        assert klog.ended() == 1
        assert "file descriptors, clients need more, 64 are allowed" in klog.log_text
        assert (tmp_path / "klog" / "logs" / ".kafka_cleanshutdown").exists()
    with limited(tmp_path, 1024) as klog:
        klog.start()
        assert read(klog.bootstrap, acknowledged) == acknowledged
        klog.stop()


def test_with_1024_descriptors_there_is_room_for_partitions_and_the_others_are_for_connections(
    tmp_path: Path,
) -> None:
    acknowledged: Written = {}
    with limited(tmp_path, 1024) as klog, ExitStack() as stack:
        klog.start()
        admin = AdminClient({"bootstrap.servers": klog.bootstrap, "log_level": 0})
        with pytest.raises(KafkaException) as refused:
            wait(admin.create_topics([NewTopic("too-many", 1024, 1)]))
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
        wait(admin.create_topics([NewTopic("kept", 200, 1)]))
        writer = Writer(klog.bootstrap, acknowledged)
        writer.write("kept", b"before")
        writer.finish()
        host, _, port = klog.bootstrap.rpartition(":")
        held = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(1200)]
        # Some wait in the kernel's queue. Clients that are connected are served on.
        for number in range(20):
            writer.write("kept", b"%d" % number)
        writer.finish()
        for one in held:
            one.close()
        assert read(klog.bootstrap, acknowledged) == acknowledged
        assert "Traceback" not in klog.log_text
        assert not [line for line in klog.complaints if "offline" in line]
        klog.stop()
    with limited(tmp_path, 1024) as klog:
        klog.start()
        assert read(klog.bootstrap, acknowledged) == acknowledged
        klog.stop()
