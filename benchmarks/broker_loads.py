"""Puts load on a broker, with Kafka's own Java clients or with requests over plain sockets.

Small requests are Produce requests with one record of 100 bytes; a connection has one in flight. The loads
over plain sockets run as `python -m benchmarks.broker_loads KIND PORT ...` and print one line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.contestants import KAFKA
from benchmarks.measure import MIB, BenchmarkError

_SUMMARY = re.compile(r"records sent, ([\d.]+) records/sec .* 99th")
SMALL_CONNECTIONS = 8
_PACE_S = 0.001


def produce(bootstrap: str, topic: str, records: int, record_bytes: int, batch_bytes: int) -> float:
    """Records/s of ProducerPerformance with acks=1, without a limit on its rate."""
    args = ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)]
    args += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=1"]
    done = KAFKA.java("org.apache.kafka.tools.ProducerPerformance", *args, f"batch.size={batch_bytes}")
    lines = done.stdout.decode().strip().splitlines()
    found = _SUMMARY.search(lines[-1]) if lines else None
    if done.returncode != 0 or found is None:
        raise BenchmarkError(f"ProducerPerformance: {done.stderr.decode()[-1000:]} {lines[-3:]}")
    return float(found[1])


def produce_paced(
    bootstrap: str, topic: str, record_bytes: int, per_s: int, seconds: int
) -> tuple[float, float]:
    """(p50, p99) of the latency in ms of the Java producer at a steady rate.

    A warm-up of the same length precedes it and does not count.
    """
    records = str(per_s * seconds)
    done = KAFKA.java("PacedProducer", bootstrap, topic, str(record_bytes), str(per_s), records, records)
    if done.returncode != 0:
        raise BenchmarkError(f"PacedProducer: {done.stderr.decode()[-1000:]}")
    p50_ms, p99_ms = map(float, done.stdout.split())
    return p50_ms, p99_ms


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str | int) -> None:
    """Creates a topic with kafka-topics."""
    args = ["--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", str(partitions)]
    for key, value in config.items():
        args += ["--config", f"{key.replace('_', '.')}={value}"]
    done = KAFKA.java("org.apache.kafka.tools.TopicCommand", *args)
    if done.returncode != 0:
        raise BenchmarkError(f"kafka-topics: {done.stdout.decode()[-1000:]}")


def consume(bootstrap: str, topic: str, times: int) -> tuple[int, float]:
    """(bytes of all values, bytes/s of the fastest pass) of a consumer that reads the topic `times` times."""
    done = KAFKA.java("AssignedConsumer", bootstrap, *([topic] * times))
    passes = [tuple(map(int, line.split())) for line in done.stdout.decode().splitlines()]
    if done.returncode != 0 or len(passes) != times:
        raise BenchmarkError(f"AssignedConsumer: {done.stderr.decode()[-1000:]}")
    return sum(size for _, size, _ in passes), max(size / took_ms * 1000 for _, size, took_ms in passes)


class Load:
    """A load over plain sockets, in its own process."""

    def __init__(self, kind: str, port: int, *args: object) -> None:
        command = [sys.executable, "-m", "benchmarks.broker_loads", kind, str(port), *map(str, args)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def wait_until_ready(self) -> None:
        """Waits until the load is ready: `idle` then prints an empty line."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def result(self) -> dict[str, float]:
        """Waits for the end of the load and returns its figures."""
        said, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise BenchmarkError(f"a load ended with status {self._process.returncode}")
        figures: dict[str, float] = json.loads(said)
        return figures


def run_load(kind: str, port: int, *args: object) -> dict[str, float]:
    return Load(kind, port, *args).result()


# The functions below run in the load's process.


def _connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _produce_frame(topic: str, batch: bytes | bytearray, partition: int = 0) -> bytes:
    name = topic.encode()
    body = struct.pack(
        f">hhihhhiih{len(name)}siii", 0, 7, 1, -1, -1, 1, 30_000, 1, len(name), name, 1, partition, len(batch)
    )
    return struct.pack(">i", len(body) + len(batch)) + body + batch


def _batch(records: int, value: bytes, keys: int) -> bytearray:
    # Imported only in the load's process: the process that measures must stay small.
    from klog.kernel.batch_builder import RecordData, build_batch  # noqa: PLC0415

    now_ms = time.time_ns() // 1_000_000
    return build_batch([RecordData(n, now_ms, b"%d" % (n % keys), value) for n in range(records)])


def _receive(sock: socket.socket) -> bytes:
    """One whole answer."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = sock.recv(65536)
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return data


def _exchange(sock: socket.socket, frame: bytes) -> bytes:
    sock.sendall(frame)
    return _receive(sock)


def _first(sock: socket.socket, frame: bytes, topic: str) -> None:
    """Sends the first request until the new topic has a leader. Raises ValueError if it never has one."""
    until_s = time.monotonic() + 20
    # size, correlation id, topics, name, partitions, partition; then the error code.
    while error := struct.unpack_from(">h", _exchange(sock, frame), 4 + 4 + 4 + 2 + len(topic) + 4 + 4)[0]:
        if time.monotonic() > until_s:
            raise ValueError(f"Produce is answered with error code {error}")
        time.sleep(0.05)


def _small(port: int, topic: str, seconds: float) -> dict[str, float]:
    """Requests per second on several connections at once."""
    socks = [_connect(port) for _ in range(SMALL_CONNECTIONS)]
    frame = _produce_frame(topic, _batch(1, bytes(100), 1))
    _first(socks[0], frame, topic)
    count = 0
    start_s = time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        for sock in socks:
            sock.send(frame)
        for sock in socks:
            _receive(sock)
        count += len(socks)
    return {"requests": count, "per_s": count / (time.perf_counter() - start_s)}


def _latency(port: int, topic: str, seconds: float) -> dict[str, float]:
    """One connection, about 1,000 requests a second."""
    sock = _connect(port)
    frame = _produce_frame(topic, _batch(1, bytes(100), 1))
    _first(sock, frame, topic)
    taken_ms = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        start_s = time.perf_counter()
        _exchange(sock, frame)
        taken_ms.append((time.perf_counter() - start_s) * 1000)
        time.sleep(_PACE_S)
    taken_ms.sort()
    return {"p50_ms": taken_ms[len(taken_ms) // 2], "p99_ms": taken_ms[int(len(taken_ms) * 0.99)]}


def _stream(port: int, topic: str, seconds: float, keys: int = 1 << 20) -> dict[str, float]:
    """Produce requests of about 1 MB, one in flight. At most 50 a second: both brokers get the same."""
    sock = _connect(port)
    frame = _produce_frame(topic, _batch(900, bytes(1000), keys))
    _first(sock, frame, topic)
    count, start_s = 1, time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        _exchange(sock, frame)
        count += 1
        time.sleep(max(0.0, start_s + count / 50 - time.perf_counter()))
    return {"bytes": count * len(frame), "per_s": count / (time.perf_counter() - start_s)}


def _spread(port: int, topic: str, partitions: int, seconds: float) -> dict[str, float]:
    """Small requests on one connection, to each partition in turn."""
    sock = _connect(port)
    batch = _batch(1, bytes(100), 1)
    frames = [_produce_frame(topic, batch, number) for number in range(partitions)]
    for frame in frames:
        _first(sock, frame, topic)
    count, start_s = 0, time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        _exchange(sock, frames[count % partitions])
        count += 1
    return {"requests": count, "per_s": count / (time.perf_counter() - start_s)}


def _fetch(port: int, topic: str, partitions: int, seconds: float) -> dict[str, float]:
    """A consumer that has read all records of its partitions and fetches again and again in one session
    (KIP-227).
    """
    # Imported only in the load's process: the process that measures must stay small.
    from klog.protocol.fetch_request import (  # noqa: PLC0415
        FetchPartition,
        FetchRequest,
        FetchTopic,
        encode_fetch_request,
    )

    def frame(topics: list[FetchTopic], session_id: int, epoch: int) -> bytes:
        body = encode_fetch_request(11, FetchRequest(0, 1, 1 << 20, 0, topics, session_id, epoch))
        return struct.pack(">ihhih", 10 + len(body), 1, 11, 1, -1) + body

    sock = _connect(port)
    wanted = [FetchPartition(number, -1, 0, -1, -1, 1 << 20) for number in range(partitions)]
    # Size, correlation id, throttle time, error code; then the session.
    session_id = struct.unpack_from(
        ">i", _exchange(sock, frame([FetchTopic(topic, None, wanted)], 0, 0)), 14
    )[0]
    count, start_s = 0, time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        answer = _exchange(sock, frame([], session_id, count + 1))
        count += 1
    if error := struct.unpack_from(">h", answer, 12)[0]:
        raise ValueError(f"Fetch is answered with error code {error}")
    return {"requests": count, "per_s": count / (time.perf_counter() - start_s)}


def _idle(port: int, _: str, connections: int, seconds: int) -> dict[str, float]:
    """Connections that send ApiVersions once and are then idle."""
    socks = [_connect(port) for _ in range(connections)]
    for sock in socks:
        _exchange(sock, struct.pack(">ihhih", 10, 18, 0, 1, -1))
    print(flush=True)
    time.sleep(seconds)
    return {"connections": len(socks)}


def _sink(port: int, path: str, read_bytes: int) -> dict[str, float]:
    """No broker: receives the bytes of one connection, writes them to a file, and does nothing else."""
    buffer = memoryview(bytearray(read_bytes))
    position = 0
    with socket.create_connection(("127.0.0.1", port), 60) as sock, open(path, "wb", buffering=0) as file:
        sock.settimeout(None)
        before = os.times()
        while size := sock.recv_into(buffer, read_bytes, socket.MSG_WAITALL):
            os.pwrite(file.fileno(), buffer[:size], position)
            position += size
        after = os.times()
    os.unlink(path)
    return {"bytes": position, "cpu_s": after.user + after.system - before.user - before.system}


def receive_and_write(path: Path, total_bytes: int, write_bytes: int) -> float:
    """CPU seconds per GiB to receive bytes from a connection and write them to a file."""
    chunk = bytes(write_bytes)
    with socket.create_server(("127.0.0.1", 0)) as server:
        load = Load("sink", server.getsockname()[1], path, write_bytes)
        sock, _ = server.accept()
        with sock:
            for _ in range(total_bytes // write_bytes):
                sock.sendall(chunk)
        found = load.result()
    return found["cpu_s"] / found["bytes"] * 1024 * MIB


def main() -> None:
    kind, port, topic, *numbers = sys.argv[1:]
    loads: dict[str, Callable[..., dict[str, float]]] = {
        "small": _small,
        "latency": _latency,
        "stream": _stream,
        "spread": _spread,
        "fetch": _fetch,
        "idle": _idle,
        "sink": _sink,
    }
    print(json.dumps(loads[kind](int(port), topic, *map(int, numbers))))


if __name__ == "__main__":
    main()
