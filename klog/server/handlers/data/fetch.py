"""Answers Fetch requests with ranges of partitions' files, at once or when there are enough bytes.

Rules: Kafka's `KafkaApis.handleFetchRequest` and `ReplicaManager.fetchMessages`; KIP-74 (sizes), KIP-98
(isolation), KIP-227 (sessions), KIP-320 and KIP-595 (leader epochs, diverging logs), KIP-392 (consumers that
read from followers), KIP-516 (topic ids), KIP-951 (the new leader along with an error). Records are sent
as slices of the segments' files. A follower's fetch also tells the replica manager how far the follower is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

from klog.formats.errors import UsageError
from klog.formats.names import PartitionKey
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchRequest, decode_fetch_request
from klog.protocol.fetch_response import (
    NOT_DIVERGING,
    FetchResponse,
    PartitionFetched,
    TopicFetched,
    encode_fetch_response,
)
from klog.protocol.file_slice import BodyPart, FileSlice
from klog.protocol.leader_hints import NO_HINT, NodeEndpoint
from klog.protocol.primitives import INT32
from klog.replication.follower import FollowerFetch
from klog.replication.partition import CONSUMER, Partition
from klog.replication.purgatory import Purgatory
from klog.replication.quota import ReplicationQuota
from klog.replication.reading import (
    NO_REPLICA,
    DelayedFetch,
    Fetched,
    FetchEntry,
    FetchLimits,
    Reads,
    is_quiet,
    read_all,
)
from klog.server.counters.request_times import ConversionCounter
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.answers import InBackground
from klog.server.handlers.data.fetch_refusals import not_known, not_read, not_served
from klog.server.handlers.data.fetch_sessions import (
    Answers,
    FetchContext,
    FetchSessions,
    SessionKey,
    SessionPartition,
    Wanted,
)
from klog.server.handlers.data.old_fetches import BATCHES_FROM, ZSTD_FROM, OldFetches
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.logs.replica_selection import RackAwareSelector
from klog.server.network.request import Request
from klog.storage.log.cold_reads import ColdReadError

_SOFT_LIMITS_FROM: Final = 3
_STORAGE_ERROR_FROM: Final = 6
_FROM_FOLLOWERS_FROM: Final = 11
_TOPIC_IDS_FROM: Final = 13
_HINTS_FROM: Final = 16
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = frozenset((0, _READ_COMMITTED))
_UNKNOWN: Final = -1

_NO_RECORDS: Final = b""
_LOADS_MAX: Final = 64  # more than the pages that the search in one index looks at

# Errors that this broker causes. The others come from metadata or from the client's position.
_FAILURES: Final = frozenset(
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
)
_NO_ERROR: Final = int(ErrorCode.NONE)


class FetchHandler:
    """Answers Fetch requests. `max_bytes` is `fetch.max.bytes`.

    A network thread does not wait for the disk: what is not in the page cache is read by `run_in_background`.
    `selector` sends consumers to near replicas (KIP-392). `quota` is the limit for what followers read.
    `conversions` counts the work for old versions. Requests before version `BATCHES_FROM` belong on an I/O
    thread. Without `access` everybody may read all topics.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        sessions: FetchSessions,
        purgatory: Purgatory,
        clock_ms: Callable[[], int],
        max_bytes: int,
        topic_stats: BrokerTopicStats,
        run_in_background: InBackground | None = None,
        selector: RackAwareSelector | None = None,
        quota: ReplicationQuota | None = None,
        conversions: ConversionCounter | None = None,
        access: Access | None = None,
    ) -> None:
        self.lookup = lookup
        self.sessions = sessions
        self.purgatory = purgatory
        self.clock_ms = clock_ms
        self.max_bytes = max_bytes
        self.run_in_background = run_in_background
        self.selector = selector
        self.quota = quota
        self.access = access
        self._topic_stats = topic_stats.topics
        self._old = OldFetches(lookup, topic_stats, conversions or ConversionCounter())

    def handle(self, request: Request) -> None:
        """Read what the request asks for, and answer it now or later."""
        version = request.api_version
        fetch = decode_fetch_request(version, request.body)
        if fetch.replica_id >= 0:
            request.from_follower = True
        context = self.sessions.context(
            fetch.session_id,
            fetch.session_epoch,
            self._wanted(fetch),
            _forgotten(fetch),
            uses_topic_ids=version >= _TOPIC_IDS_FROM,
        )
        readable = self._readable_topics(request, fetch, context)
        pending = _Pending(request, fetch, context, self._limits(request, fetch), readable)
        if request.on_io_thread:
            self._go_on(pending, self._read(pending))
        else:
            self._read_and(pending, self._go_on)

    def _read_and(self, pending: _Pending, go_on: _GoOn) -> None:
        """Read on the network thread of the request, which serves others while the disk is needed."""
        if self.run_in_background is None:
            go_on(pending, self._read(pending))
            return
        try:
            reads = self._read(pending, False)
        except ColdReadError as cold:
            self.run_in_background(pending.request, partial(self._read_from_disk, pending, cold, go_on))
        else:
            go_on(pending, reads)

    def _read_from_disk(self, pending: _Pending, cold: ColdReadError, go_on: _GoOn, _: Request) -> None:
        """Load what is not in the page cache without the log's lock, so that others can go on appending."""
        for _load in range(_LOADS_MAX):
            cold.load()
            try:
                reads = self._read(pending, False)
            except ColdReadError as next_cold:
                cold = next_cold
            else:
                break
        else:
            reads = self._read(pending)
        go_on(pending, reads)

    def _go_on(self, pending: _Pending, reads: Reads) -> None:
        """Answer now, or wait for more records."""
        fetch = pending.fetch
        if fetch.replica_id >= 0:
            # Before the answer waits, and also for partitions without new records.
            follower = FollowerFetch(fetch.replica_id, fetch.replica_epoch, self.clock_ms())
            self.lookup.replicas.record_fetch(follower, pending.quiet, reads.fetched)
        if reads.answer_now or fetch.max_wait_ms <= 0:
            self._answer(pending, reads)
            return
        request = pending.request
        answer = self._answer if request.api_version >= BATCHES_FROM else self._answer_in_background
        operation = DelayedFetch(
            self.clock_ms() + fetch.max_wait_ms,
            self.lookup.replicas,
            reads,
            pending.quiet,
            pending.limits,
            # Read after the requests that have been received: one answer has the records of all.
            partial(request.connection.soon, partial(self._read_and, pending, answer)),
        )
        self.purgatory.watch(operation, operation.keys)

    def failed(self, request: Request, error: ErrorCode) -> list[BodyPart] | None:
        """The answer to a request whose handling failed."""
        version, topics = request.api_version, []
        fetch = decode_fetch_request(version, request.body)
        if version < _TOPIC_IDS_FROM:
            # Versions below 7 have no error of the whole request.
            topics = [
                TopicFetched(topic, None, [not_served(each[0], error) for each in partitions])
                for topic, _, partitions in fetch.topics
            ]
        return encode_fetch_response(version, FetchResponse(topics, error, fetch.session_id))

    # -- what is asked for -----------------------------------------------------------------------------------

    def _wanted(self, fetch: FetchRequest) -> Wanted:
        wanted: Wanted = {}
        for topic, topic_id, partitions in fetch.topics:
            name = topic
            if topic_id is not None:
                name = self.lookup.topic_name(topic_id)
            known_by = topic_id or topic or ""
            for index, epoch, offset, fetched_epoch, start, max_bytes in partitions:
                # A topic whose id is unknown has no name yet; no topic is called "".
                wanted[known_by, index] = FetchEntry(
                    (name or "", index), offset, max_bytes, epoch, fetched_epoch, start, topic_id
                )
        return wanted

    def _readable_topics(
        self, request: Request, fetch: FetchRequest, context: FetchContext
    ) -> Container[str] | None:
        """The topics that the client may read, of those that it asks for; None if it may read all."""
        access = self.access
        if access is None:
            return None
        if fetch.replica_id >= 0:
            return None if access.allows_on_cluster(request, AclOperation.CLUSTER_ACTION) else ()
        asked = [*context.wanted.values(), *(known.entry for _, known in context.known)]
        names = [name for name in map(self._topic_of, asked) if name is not None]
        return access.allowed(request, AclOperation.READ, AclResourceType.TOPIC, names)

    def _topic_of(self, entry: FetchEntry) -> str | None:
        if entry.key[0] or entry.topic_id is None:
            return entry.key[0]
        return self.lookup.topic_name(entry.topic_id)

    def _limits(self, request: Request, fetch: FetchRequest) -> FetchLimits:
        """Raises `UsageError`."""
        version, replica_id = request.api_version, fetch.replica_id
        if fetch.isolation_level not in _ISOLATION_LEVELS:
            raise UsageError(f"there is no isolation level {fetch.isolation_level}")
        max_bytes = min(fetch.max_bytes, self.max_bytes)
        if request.charge is not None and replica_id < 0:
            max_bytes = min(max_bytes, request.charge.fetch_max_bytes)
        prefer = None
        if self.selector is not None and replica_id == CONSUMER and version >= _FROM_FOLLOWERS_FROM:
            prefer = self.selector.for_rack(fetch.rack_id)
        return FetchLimits(
            min(fetch.min_bytes, max_bytes),
            max_bytes,
            replica_id,
            fetch.isolation_level == _READ_COMMITTED and replica_id < 0,
            replica_id >= 0 or (replica_id == CONSUMER and version < _FROM_FOLLOWERS_FROM),
            prefer,
            partial(self._is_throttled, replica_id) if replica_id >= 0 and self.quota is not None else None,
            are_hard=version < _SOFT_LIMITS_FROM,
        )

    def _is_throttled(self, replica_id: int, partition: Partition) -> bool:
        """Whether a follower is sent nothing of a partition now. Replicas in sync are never held back."""
        quota = self.quota
        return (
            quota is not None
            and replica_id not in partition.state.isr.committed
            and quota.is_throttled(partition.topic_partition)
            and quota.exceeded(self.clock_ms())
        )

    def _read(self, pending: _Pending, may_wait: bool = True) -> Reads:
        """Read the partitions. Some are noted as `refused`, and those without changes as `quiet`."""
        lookup, context, limits = self.lookup, pending.context, pending.limits
        partitions, readable = lookup.replicas.partitions, pending.readable
        quiet: list[SessionPartition] = []
        asked = list(context.wanted.items())
        for key, known in context.known:
            partition = partitions.get(known.entry.key)
            is_readable = readable is None or known.entry.key[0] in readable
            if partition is not None and is_readable and is_quiet(partition, known, limits):
                quiet.append(known)
            else:
                asked.append((key, known.entry))
        entries, pending.refused = self._readable(asked, readable)
        pending.quiet = quiet
        if not entries and not quiet:
            return Reads([], 0, answer_now=True)
        return read_all(lookup.replicas, entries, limits, lookup.missing, may_wait=may_wait)

    def _readable(
        self, asked: Iterable[tuple[SessionKey, FetchEntry]], readable: Container[str] | None
    ) -> tuple[list[FetchEntry], Answers]:
        """The partitions that the cluster knows, and the refusals of the others, unknown ids first.

        The client may read the topics in `readable` only, unless it is None.
        """
        known = self.lookup.known
        entries: list[FetchEntry] = []
        nameless: Answers = []
        refused: Answers = []
        for key, wanted in asked:
            entry = wanted
            if not entry.key[0] and entry.topic_id is not None:
                # The topic may have become known since the session named it.
                name = self.lookup.topic_name(entry.topic_id)
                if name is None:
                    nameless.append((key, not_known(entry.key[1], ErrorCode.UNKNOWN_TOPIC_ID)))
                    continue
                entry = entry._replace(key=(name, entry.key[1]))
            if readable is not None and entry.key[0] not in readable:
                # Before it is looked up: who may not read a topic learns nothing of it.
                refused.append((key, not_known(entry.key[1], ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            elif known(entry.key):
                entries.append(entry)
            else:
                refused.append((key, not_known(entry.key[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        return entries, nameless + refused

    # -- what is answered ------------------------------------------------------------------------------------

    def _answer_in_background(self, pending: _Pending, reads: Reads) -> None:
        """Conversion takes long: the thread that has completed the fetch serves others."""
        if self.run_in_background is None:
            self._answer(pending, reads)
        else:
            self.run_in_background(pending.request, lambda _: self._answer(pending, reads))

    def _answer(self, pending: _Pending, reads: Reads) -> None:
        request, fetch = pending.request, pending.fetch
        version = request.api_version
        committed = pending.limits.committed
        nodes: dict[int, NodeEndpoint] = {}
        answers: Answers = []
        for found in reads.fetched:
            entry = found.entry
            answer = _answer_of(found, committed=committed)
            if answer.error_code != _NO_ERROR:
                answer = self._explained(request, entry.key, answer, nodes)
            answers.append(((entry.topic_id or entry.key[0], entry.key[1]), answer))
        answers += pending.refused
        if self._is_over_quota(pending, answers):
            # The client asks for the records again.
            finished = self.sessions.throttled(pending.context)
            nodes.clear()
        else:
            self._count(pending, reads)
            finished = self.sessions.finish(
                pending.context,
                answers,
                privileged=fetch.replica_id >= 0,
                uses_topic_ids=version >= _TOPIC_IDS_FROM,
            )
        answers = finished.answers
        if version < ZSTD_FROM:
            answers = [(key, self._for_version(pending, key, answer)) for key, answer in answers]
        response = FetchResponse(
            _by_topic(version, answers),
            finished.error,
            finished.session_id,
            0,
            tuple(nodes.values()) if nodes else (),
        )
        request.respond(encode_fetch_response(version, response))

    def _is_over_quota(self, pending: _Pending, answers: Answers) -> bool:
        """Whether the client must not have these answers now; they are charged to its quotas."""
        charge, version = pending.request.charge, pending.request.api_version
        if charge is None or pending.fetch.replica_id >= 0:
            return False
        sent = self.sessions.preview(pending.context, answers)
        body = encode_fetch_response(version, FetchResponse(_by_topic(version, sent)))
        size_bytes = sum(part.size_bytes if isinstance(part, FileSlice) else len(part) for part in body)
        return charge.fetch_throttle_ms(INT32.size + size_bytes) > 0

    def _count(self, pending: _Pending, reads: Reads) -> None:
        replica_id, version = pending.fetch.replica_id, pending.request.api_version
        for topic, several in groupby(known.entry.key[0] for known in pending.quiet):
            self._topic_stats[topic].fetches += sum(1 for _ in several)
        for found in reads.fetched:
            entry, read = found.entry, found.read
            stats = self._topic_stats[entry.key[0]]
            stats.fetches += 1
            if read is None:
                stats.failed_fetches += found.error in _FAILURES
            elif replica_id < 0:
                # Of older versions is counted what is sent.
                stats.bytes_out += read.size if version >= ZSTD_FROM else 0
            elif read.size:
                stats.replication_bytes_out += read.size
                if self.quota is not None and self.quota.is_throttled(entry.key):
                    self.quota.record(read.size, self.clock_ms())
                if self._is_added(entry.key, replica_id):
                    stats.reassignment_bytes_out += read.size

    def _is_added(self, key: PartitionKey, replica_id: int) -> bool:
        """Whether a reassignment adds this replica to the partition."""
        partition = self.lookup.replicas.partitions.get(key)
        return partition is not None and replica_id in partition.state.assignment.adding

    def _explained(
        self, request: Request, key: PartitionKey, answer: PartitionFetched, nodes: dict[int, NodeEndpoint]
    ) -> PartitionFetched:
        """An error as clients of this version understand it, with the current leader."""
        error = ErrorCode(answer.error_code)
        if request.api_version >= _HINTS_FROM:
            hint, endpoint = self.lookup.leader(key, error, request.listener)
            if endpoint is not None:
                nodes[endpoint.node_id] = endpoint
            return answer if hint == NO_HINT else answer._replace(current_leader=hint)
        if request.api_version < _STORAGE_ERROR_FROM and error is ErrorCode.KAFKA_STORAGE_ERROR:
            return answer._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer

    def _for_version(self, pending: _Pending, key: SessionKey, answer: PartitionFetched) -> PartitionFetched:
        """The answer as clients of an old version understand it. The session is not affected."""
        version = pending.request.api_version
        # Versions that need the offset have no sessions.
        offset = pending.context.wanted[key].offset if version < BATCHES_FROM else _UNKNOWN
        return self._old.answer(version, pending.fetch.replica_id, str(key[0]), offset, answer)


_GoOn: TypeAlias = "Callable[[_Pending, Reads], None]"


class _Pending:
    """A request that is not answered yet."""

    __slots__ = ("context", "fetch", "limits", "quiet", "readable", "refused", "request")

    def __init__(
        self,
        request: Request,
        fetch: FetchRequest,
        context: FetchContext,
        limits: FetchLimits,
        readable: Container[str] | None,
    ) -> None:
        self.request = request
        self.fetch = fetch
        self.context = context
        self.limits = limits
        self.readable = readable
        self.quiet: Sequence[SessionPartition] = ()
        self.refused: Answers = []


def _forgotten(fetch: FetchRequest) -> list[SessionKey]:
    return [
        (topic_id or topic or "", index)
        for topic, topic_id, partitions in fetch.forgotten
        for index in partitions
    ]


def _answer_of(found: Fetched, *, committed: bool) -> PartitionFetched:
    read, index = found.read, found.entry.key[1]
    if read is None:
        return not_read(index, found.error)
    file = read.file
    diverging, aborted = NOT_DIVERGING, None
    if found.diverging is not None:
        diverging = found.diverging
    elif committed and found.preferred_replica == NO_REPLICA:
        aborted = [(txn.producer_id, txn.first_offset) for txn in read.aborted]
    return PartitionFetched(
        index,
        _NO_ERROR,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        aborted,
        found.preferred_replica,
        _NO_RECORDS if file is None else FileSlice(file, read.position, read.size),
        diverging,
    )


def _by_topic(version: int, answers: Answers) -> list[TopicFetched]:
    """Answers grouped by topic if they follow each other. The order stays: clients read in this order."""
    topics: list[TopicFetched] = []
    last: object = None
    for (topic, _), answer in answers:
        if not topics or topic != last:
            last = topic
            if version >= _TOPIC_IDS_FROM:
                topics.append(TopicFetched(None, topic, [answer]))  # type: ignore[arg-type]
            else:
                topics.append(TopicFetched(topic, None, [answer]))  # type: ignore[arg-type]
        else:
            topics[-1].partitions.append(answer)
    return topics
