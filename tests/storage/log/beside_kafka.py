"""A log of klog's and one of Kafka's that are told the same, step by step, and must say the same."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path

from klog.config.topic import default_topic_config
from klog.storage.log import time_lookup
from klog.storage.log.append_values import AppendError, Origin
from klog.storage.log.loading import LoadSettings, create_log, load_log
from klog.storage.log.partition_log import AppendInfo, PartitionLog
from klog.storage.log.reading import OffsetOutOfRangeError
from klog.storage.log.retention import apply_retention
from klog.storage.log.time_lookup import TimedOffset
from tests.peers.log_server import Answer, LogServer
from tests.storage.log.building import NOW_MS, PARTITION, Clock, Later, files, latest
from tests.storage.partition_copies import as_kafka_reads

Configs = Mapping[str, str | int]

# Files stay where they are renamed to, and nothing waits for the cleaner.
COMMON: Configs = {"file.delete.delay.ms": 3_600_000, "max.compaction.lag.ms": 2**63 - 1}


class TwoLogs:
    """Both logs, in directories of their own, and the clock that they share."""

    def __init__(
        self, server: LogServer, root: Path, configs: Configs, expiration_ms: int = 86_400_000
    ) -> None:
        self._server = server
        self._root = root
        self._expiration_ms = expiration_ms
        self._clock = Clock(NOW_MS)
        self.is_follower = False
        self._is_duplicate = False  # the last batch was
        self._was_loaded = False  # a snapshot has been read
        self.directories = [root / name / str(PARTITION) for name in ("kafka", "klog")]
        for directory in self.directories:
            directory.mkdir(parents=True)
        self.configure(configs)
        self.open(clean=True)

    @property
    def now_ms(self) -> int:
        """What both take for the time."""
        return self._clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._clock.now_ms = now_ms

    def configure(self, configs: Configs) -> None:
        """Give the topic other configs."""
        self.configs = {**COMMON, **configs}
        self._topic = default_topic_config({name: str(value) for name, value in self.configs.items()})

    def _pairs(self) -> str:
        return ";".join(f"{name}={value}" for name, value in self.configs.items())

    # -- life ------------------------------------------------------------------------------------------------

    def open(self, *, clean: bool, recovery_point: int = 0, log_start_offset: int = 0) -> None:
        """Open both, new or as they were left."""
        kafka, klog = self.directories
        theirs = self._server.step(
            self.now_ms, "open", kafka, self._pairs(), log_start_offset, recovery_point,
            str(clean).lower(), self._expiration_ms,
        )  # fmt: skip
        settings = LoadSettings(
            self.now_ms, str(self._root / "quarantine"), clean, recovery_point, log_start_offset,
            self._expiration_ms,
        )  # fmt: skip
        if any(klog.iterdir()):
            self._was_loaded = True
            state = load_log(str(klog), self._topic, settings).state
        else:
            state = create_log(str(klog), self._topic, settings)
        self.log = PartitionLog(
            PARTITION, str(klog), self._topic, state, clock_ms=self._clock, background=Later()
        )
        assert not theirs.error, theirs
        self.check("watermark", self.log.log_start_offset)

    def close(self) -> None:
        """A clean stop; leaves the same files."""
        self.check("close")
        self.require_same_files()

    def crash(self) -> None:
        """Both brokers die, with the files that klog's log has."""
        self.log.release()
        kafka, klog = self.directories
        shutil.rmtree(kafka)
        shutil.copytree(klog, kafka)

    def require_same_files(self) -> None:
        """The same bytes, but for what Kafka has not made yet or will remove, and transaction indexes.

        Kafka's entries tell a last stable offset as of the end of the append, klog's as of their marker:
        where a follower appends several batches at once, the former may be later.
        """
        kafka, klog = (self._files(directory) for directory in self.directories)
        # An index that Kafka never looked at is not there; a removed snapshot may be gone at once.
        klog = {name: data for name, data in klog.items() if data or name in kafka}
        differing = {name for name in kafka.keys() | klog if kafka.get(name) != klog.get(name)}
        assert not differing, f"files differ: {sorted(differing)}"

    def _files(self, directory: Path) -> dict[str, bytes]:
        left_out = (".deleted", ".txnindex") if self.is_follower else (".deleted",)
        kept = {name: data for name, data in files(directory).items() if not name.endswith(left_out)}
        return as_kafka_reads(kept)

    # -- steps -----------------------------------------------------------------------------------------------

    def check(self, verb: str, *fields: object) -> Answer:
        """Do one thing to both; they must tell the same, and be in the same state then."""
        answer = self._both(verb, *fields)
        if verb != "close":
            ours, theirs = self._state(), self._server.step(self.now_ms, "state").told
            assert ours == theirs, f"after {verb}: klog {ours}, Kafka {theirs}"
        return answer

    def _both(self, verb: str, *fields: object) -> Answer:
        theirs = self._server.step(self.now_ms, verb, *map(_sent, fields))
        ours = self._step(verb, *fields)
        if self._knows_more(theirs):
            return theirs
        assert ours == theirs, f"{verb}: klog {ours}, Kafka {theirs}"
        return ours

    def _knows_more(self, theirs: Answer) -> bool:
        """Whether klog alone knows the batch as a duplicate: of a snapshot Kafka keeps the last one only."""
        is_duplicate, self._is_duplicate = self._is_duplicate, False
        return is_duplicate and self._was_loaded and theirs.error == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def cut(self, offset: int) -> None:
        """Truncate both. Kafka finds its last stable offset anew only when the high watermark is told."""
        self._was_loaded = True
        self._both("truncate", offset)
        self.check("watermark", self.log.high_watermark)

    def _step(self, verb: str, *fields: object) -> Answer:
        try:
            told = getattr(self, f"_{verb}")(*fields)
        except AppendError as refused:
            indexes = " ".join(str(record.record_index) for record in refused.record_errors)
            return Answer(error=refused.error, bad_records=indexes)
        except OffsetOutOfRangeError:
            return Answer(error="OFFSET_OUT_OF_RANGE")
        return Answer(str(told).lower() if isinstance(told, bool) else "" if told is None else str(told))

    def _state(self) -> str:
        log = self.log
        segments = "".join(f" {segment.base_offset}:{segment.size}" for segment in log.segments)
        producers = "".join(
            f" {pid}:{known.epoch}:{known.last_sequence}:{known.last_timestamp}"
            f":{known.coordinator_epoch}:{known.txn_first_offset}"
            for pid, known in sorted(log.producers.by_id.items())
        )
        offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset)
        return f"{' '.join(map(str, offsets))};{segments};{producers}"

    def _leader(self, epoch: int, origin: str, data: bytes) -> str:
        taken = self.log.append_as_leader(memoryview(bytearray(data)), epoch, self.now_ms, Origin[origin])
        self._is_duplicate = taken.duplicate
        return _appended(taken)

    def _follower(self, epoch: int, data: bytes) -> str:
        self.is_follower = True
        info = self.log.append_as_follower(memoryview(data), epoch, self.now_ms)
        # Kafka does not say where messages older than magic 2 begin.
        return _appended(info._replace(first_offset=-1) if data[16] < 2 else info)

    def _configure(self, _: str) -> None:
        self.log.reconfigure(self._topic)

    def reconfigure(self, configs: Configs) -> None:
        """The topic's configs change while the log is open."""
        self.configure({**self.configs, **configs})
        self.check("configure", self._pairs())

    def _watermark(self, offset: int) -> int:
        return self.log.set_high_watermark(offset)

    def _epoch(self, epoch: int, start_offset: int) -> None:
        self.log.assign_epoch(epoch, start_offset)

    def _epochEnd(self, epoch: int) -> str:  # noqa: N802 (the verb)
        end = self.log.end_of_epoch(epoch)
        return f"{end.epoch} {end.end_offset}" if end.end_offset >= 0 else ""

    def _truncate(self, offset: int) -> bool:
        return self.log.truncate_to(offset)

    def _start(self, offset: int) -> bool:
        return self.log.advance_log_start(offset)

    def _retain(self) -> int:
        return apply_retention(self.log, self.now_ms)

    def _roll(self) -> int:
        return self.log.roll().base_offset

    def _flush(self) -> None:
        self.log.flush()

    def _expire(self) -> None:
        self.log.producers.remove_expired(self.now_ms, self._expiration_ms)

    def _read(self, offset: int, max_bytes: int, isolation: str, at_least_one: bool) -> str:
        log = self.log
        limits = {
            "LOG_END": log.log_end_offset,
            "HIGH_WATERMARK": log.high_watermark,
            "TXN_COMMITTED": log.last_stable_offset,
        }
        committed = isolation == "TXN_COMMITTED"
        read = log.read(offset, max_bytes, limits[isolation], at_least_one=at_least_one, committed=committed)
        if read.file is None:
            return ""
        aborted = "".join(f" {txn.producer_id}:{txn.first_offset}" for txn in read.aborted)
        return f"{read.segment_base} {read.position} {read.size}{aborted}"

    def _time(self, timestamp: int) -> str:
        special = {-1: latest, -2: time_lookup.earliest, -3: time_lookup.with_max_timestamp}
        found: TimedOffset | None
        if timestamp in special:
            found = special[timestamp](self.log)
        else:
            found = time_lookup.first_at_or_after(self.log, timestamp)
        return "" if found is None else f"{found.timestamp} {found.offset} {found.leader_epoch}"

    def _close(self) -> None:
        self.log.close()


def _sent(field: object) -> object:
    if isinstance(field, bytes):
        return base64.b64encode(field).decode()
    return str(field).lower() if isinstance(field, bool) else field


def _appended(info: AppendInfo) -> str:
    return f"{info.first_offset} {info.last_offset} {info.log_append_time_ms} {info.log_start_offset}"
