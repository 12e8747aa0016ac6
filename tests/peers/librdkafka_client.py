"""Runs librdkafka, of any version, through ctypes: the first argument is the shared library.

`produce bootstrap topic version count codec...` prints the offset of each record.
`consume bootstrap topic version group count` prints `offset TAB key TAB value`, commits, and ends.
`version` is that of the broker (`broker.version.fallback`), or "ask".
"""

from __future__ import annotations

import ctypes as c
import sys
import time
from typing import Any

_PRODUCER, _CONSUMER = 0, 1
_COPY = 2
_TIMEOUT_MS = 60_000
_ERROR_BYTES = 512


class _Message(c.Structure):
    _fields_ = [
        ("error", c.c_int),
        ("topic", c.c_void_p),
        ("partition", c.c_int32),
        ("value", c.POINTER(c.c_char)),
        ("value_size", c.c_size_t),
        ("key", c.POINTER(c.c_char)),
        ("key_size", c.c_size_t),
        ("offset", c.c_int64),
        ("private", c.c_void_p),
    ]


_Delivered = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(_Message), c.c_void_p)


class Client:
    """One handle of the library."""

    def __init__(self, library: str, kind: int, configs: dict[str, str], on_delivered: Any = None) -> None:
        self.lib = c.CDLL(library)
        for name in ("conf_new", "new", "topic_new", "topic_partition_list_new", "topic_partition_list_add"):
            getattr(self.lib, f"rd_kafka_{name}").restype = c.c_void_p
        self.lib.rd_kafka_consumer_poll.restype = c.POINTER(_Message)
        conf = c.c_void_p(self.lib.rd_kafka_conf_new())
        error = c.create_string_buffer(_ERROR_BYTES)
        for name, value in configs.items():
            done = self.lib.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, _ERROR_BYTES)
            assert done == 0, error.value
        if on_delivered is not None:
            self.lib.rd_kafka_conf_set_dr_msg_cb(conf, on_delivered)
        self.handle = c.c_void_p(self.lib.rd_kafka_new(kind, conf, error, _ERROR_BYTES))
        assert self.handle, error.value


def produce(library: str, configs: dict[str, str], topic: str, count: int, codec: str) -> None:
    offsets: list[int] = []

    def on_delivered(_handle: object, message: Any, _opaque: object) -> None:
        assert message.contents.error == 0, message.contents.error
        offsets.append(message.contents.offset)

    more = {"compression.codec": codec, "queue.buffering.max.ms": "50", "produce.offset.report": "true"}
    # The library calls it as long as the handle lives, so it must live here.
    callback = _Delivered(on_delivered)
    client = Client(library, _PRODUCER, {**configs, **more}, callback)
    handle = c.c_void_p(client.lib.rd_kafka_topic_new(client.handle, topic.encode(), None))
    for at in range(count):
        value = f"{codec} {at}".encode()
        done = client.lib.rd_kafka_produce(
            handle, 0, _COPY, value, c.c_size_t(len(value)), b"key", c.c_size_t(3), None
        )
        assert done == 0
    assert client.lib.rd_kafka_flush(client.handle, _TIMEOUT_MS) == 0
    sys.stdout.write("".join(f"{offset}\n" for offset in sorted(offsets)))


def consume(library: str, configs: dict[str, str], topic: str, group: str, count: int) -> None:
    more = {"group.id": group, "enable.auto.commit": "false", "enable.auto.offset.store": "true"}
    client = Client(library, _CONSUMER, {**configs, **more, "auto.offset.reset": "earliest"})
    lib = client.lib
    lib.rd_kafka_poll_set_consumer(client.handle)
    partitions = c.c_void_p(lib.rd_kafka_topic_partition_list_new(1))
    lib.rd_kafka_topic_partition_list_add(partitions, topic.encode(), 0)
    assert lib.rd_kafka_assign(client.handle, partitions) == 0
    deadline_s = time.monotonic() + _TIMEOUT_MS / 1000
    while count and time.monotonic() < deadline_s:
        found = lib.rd_kafka_consumer_poll(client.handle, 500)
        if found and not found.contents.error:
            message = found.contents
            key = c.string_at(message.key, message.key_size).decode() if message.key else "NULL"
            value = c.string_at(message.value, message.value_size).decode()
            sys.stdout.write(f"{message.offset}\t{key}\t{value}\n")
            count -= 1
        if found:
            lib.rd_kafka_message_destroy(found)
    assert lib.rd_kafka_commit(client.handle, None, 0) == 0
    lib.rd_kafka_consumer_close(client.handle)


def main(library: str, what: str, bootstrap: str, topic: str, version: str, *args: str) -> None:
    configs = {"bootstrap.servers": bootstrap, "log_level": "0"}
    if version != "ask":
        configs |= {"api.version.request": "false", "broker.version.fallback": version}
    if what == "produce":
        for codec in args[1:]:
            produce(library, configs, topic, int(args[0]), codec)
    else:
        consume(library, configs, topic, args[0], int(args[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
