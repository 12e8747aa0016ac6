# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads the usual OffsetCommit frames in one pass. `_commit_run.pyi` states what each method means."""

from cpython.unicode cimport PyUnicode_DecodeASCII

IMPLEMENTATION = "cython"

cdef enum:
    MOST_COMMITS = 1024
    MOST_IN_ONE = 64  # topics of a frame, and partitions of a topic
    API_KEY = 8
    FIRST_VERSION = 2
    LAST_VERSION = 9
    THROTTLE_FROM = 3
    RETENTION_TO = 4
    EPOCH_FROM = 6
    INSTANCE_FROM = 7
    FLEXIBLE_FROM = 8

include "_frame_run.pxi"


cdef struct Frame:
    Py_ssize_t end
    int32_t correlation_id
    int32_t commits
    int32_t topics
    int32_t batch_bytes
    int32_t answer_bytes


cdef struct Commit:
    Py_ssize_t name
    Py_ssize_t metadata
    int64_t offset
    int32_t name_size
    int32_t metadata_size
    int32_t partition
    int32_t leader_epoch
    int32_t begins  # how many partitions of its topic begin here; 0 for the others


cdef struct Span:
    Py_ssize_t position
    Py_ssize_t size


cdef inline bint is_ascii(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    cdef uint8_t seen = 0
    for at in range(size):
        seen |= p[at]
    return seen < 0x80


cdef inline const uint8_t *string(
    const uint8_t *p, const uint8_t *stop, bint flexible, Py_ssize_t *size
) noexcept nogil:
    """Where a string begins, with its size (-1: null); NULL if it does not end before `stop`."""
    cdef uint32_t length
    if flexible:
        p = uvarint32(p, stop, &length)
        if p == NULL or length > 0x8000:
            return NULL
        size[0] = <Py_ssize_t>length - 1
    else:
        if stop - p < 2:
            return NULL
        size[0] = <int16_t>be16(p)
        p += 2
        if size[0] < -1:
            return NULL
    return NULL if size[0] > stop - p else p


cdef inline const uint8_t *count_of(
    const uint8_t *p, const uint8_t *stop, bint flexible, int *count
) noexcept nogil:
    """Reads how many items follow; NULL unless they are 1 to `MOST_IN_ONE`."""
    if flexible:
        if p >= stop or p[0] < 2 or p[0] > MOST_IN_ONE + 1:
            return NULL
        count[0] = p[0] - 1
        return p + 1
    if stop - p < 4 or be32(p) < 1 or be32(p) > MOST_IN_ONE:
        return NULL
    count[0] = <int>be32(p)
    return p + 4


cdef class CommitRun(FrameRun):
    cdef bytes batches
    cdef Frame frame[MOST_FRAMES]
    cdef Commit commits[MOST_COMMITS]
    cdef Span sender
    cdef Span group_name
    cdef Span member_name
    cdef Span instance_name
    cdef readonly int generation
    cdef readonly int largest_metadata_bytes

    cdef void reset(self) noexcept:
        self.frames = 0
        self.records = 0
        self.largest_metadata_bytes = 0
        self.batches = b""

    cdef bint take(self, const uint8_t *data, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef const uint8_t *p
        cdef const uint8_t *stop
        cdef Frame *frame = &self.frame[self.frames]
        cdef Span sender, group, member, instance
        cdef int version, generation
        cdef bint flexible
        p = after_head(data + start, end - start, API_KEY, &version, &stop)
        if p == NULL:
            return False
        flexible = version >= FLEXIBLE_FROM
        frame.correlation_id = <int32_t>be32(data + start + 8)
        sender.position = p - data
        p = string(p, stop, flexible, &group.size)
        if p == NULL or group.size <= 0 or not is_ascii(p, group.size):
            return False
        group.position = p - data
        p += group.size
        if stop - p < 4:
            return False
        generation = <int32_t>be32(p)
        p = string(p + 4, stop, flexible, &member.size)
        if p == NULL or member.size < 0 or not is_ascii(p, member.size):
            return False
        member.position = p - data
        p += member.size
        instance.size = -1
        instance.position = p - data
        if version >= INSTANCE_FROM:
            p = string(p, stop, flexible, &instance.size)
            if p == NULL or not is_ascii(p, instance.size):
                return False
            instance.position = p - data
            if instance.size > 0:
                p += instance.size
        if version <= RETENTION_TO:
            if stop - p < 8 or be64(p) != <uint64_t>-1:
                return False
            p += 8
        sender.size = p - data - sender.position
        if self.frames and (
            version != self.version
            or sender.size != self.sender.size
            or memcmp(data + sender.position, data + self.sender.position, sender.size) != 0
        ):
            return False
        if not self.take_topics(data, p, stop, version, frame, group):
            return False
        frame.end = self.end = stop - data
        self.version = version
        self.generation = generation
        self.sender = sender
        self.group_name = group
        self.member_name = member
        self.instance_name = instance
        self.records += frame.commits
        self.frames += 1
        return True

    cdef bint take_topics(
        self,
        const uint8_t *data,
        const uint8_t *p,
        const uint8_t *stop,
        int version,
        Frame *frame,
        Span group,
    ) noexcept:
        """Read the topics of a frame, which end the frame; whether they are usual ones."""
        cdef Commit *first = &self.commits[self.records]
        cdef Commit *commit
        cdef Commit *other
        cdef bint flexible = version >= FLEXIBLE_FROM
        cdef Py_ssize_t name, name_size, size
        cdef int topics, partitions, topic, number, room
        cdef int largest = self.largest_metadata_bytes
        cdef int tags = 1 if flexible else 0
        cdef CommitKeyFields key
        cdef CommitValueFields value
        cdef RecordFields record
        cdef int body
        frame.commits = 0
        frame.batch_bytes = BATCH_HEADER_BYTES
        # Size, correlation id, tags of the header, throttle time, number of topics, tags.
        frame.answer_bytes = 8 + tags + (4 if version >= THROTTLE_FROM else 0) + (1 if flexible else 4) + tags
        room = <int>(MOST_COMMITS - self.records)
        p = count_of(p, stop, flexible, &topics)
        if p == NULL:
            return False
        frame.topics = topics
        for topic in range(topics):
            p = string(p, stop, flexible, &name_size)
            if p == NULL or name_size <= 0 or name_size >= 0x7F or not is_ascii(p, name_size):
                return False
            name = p - data
            p = count_of(p + name_size, stop, flexible, &partitions)
            if p == NULL or frame.commits + partitions > room:
                return False
            for number in range(frame.commits):
                other = first + number
                if other.begins and other.name_size == name_size:
                    if memcmp(data + other.name, data + name, name_size) == 0:
                        return False
            frame.answer_bytes += <int>name_size + (2 + tags if flexible else 6) + partitions * (6 + tags)
            for number in range(partitions):
                commit = first + frame.commits
                if stop - p < (16 if version >= EPOCH_FROM else 12):
                    return False
                commit.name = name
                commit.name_size = <int32_t>name_size
                commit.begins = partitions if number == 0 else 0
                commit.partition = <int32_t>be32(p)
                commit.offset = <int64_t>be64(p + 4)
                p += 12
                commit.leader_epoch = -1
                if version >= EPOCH_FROM:
                    commit.leader_epoch = <int32_t>be32(p)
                    p += 4
                p = string(p, stop, flexible, &size)
                if p == NULL:
                    return False
                if size < 0:
                    size = 0
                if not is_ascii(p, size):
                    return False
                commit.metadata = p - data
                commit.metadata_size = <int32_t>size
                p += size
                if flexible:
                    if p >= stop or p[0] != 0:
                        return False
                    p += 1
                for other in (commit - number)[:number]:
                    if other.partition == commit.partition:
                        return False
                if size > largest:
                    largest = <int>size
                key = key_of(data, commit, group)
                value = value_of(data, commit, 0)
                record = record_of(frame.commits, &key, &value)
                body = <int>size_of_record(&record)
                frame.batch_bytes += <int>size_of_varint(zigzag64(body)) + body
                frame.commits += 1
            if flexible:
                if p >= stop or p[0] != 0:
                    return False
                p += 1
        if flexible:
            if p >= stop or p[0] != 0:
                return False
            p += 1
        if p != stop:
            return False
        self.largest_metadata_bytes = largest
        return True

    cdef object text(self, Span span):
        if not self.frames:
            return ""
        return PyUnicode_DecodeASCII(<const char *>self.source() + span.position, span.size, NULL)

    @property
    def group(self):
        return self.text(self.group_name)

    @property
    def member(self):
        return self.text(self.member_name)

    @property
    def instance(self):
        return None if not self.frames or self.instance_name.size < 0 else self.text(self.instance_name)

    def partitions(self):
        cdef const uint8_t *source
        cdef Commit *commit
        cdef bytes name = b""
        cdef list keys = []
        cdef int number
        if not self.frames:
            return keys
        source = self.source()
        for number in range(self.records):
            commit = &self.commits[number]
            if commit.begins:
                name = PyBytes_FromStringAndSize(<const char *>source + commit.name, commit.name_size)
            keys.append((name, commit.partition))
        return keys

    def offsets(self):
        cdef const uint8_t *source
        cdef Commit *commit
        cdef list offsets = []
        cdef str metadata
        cdef int number
        if not self.frames:
            return offsets
        source = self.source()
        for number in range(self.records):
            commit = &self.commits[number]
            metadata = ""
            if commit.metadata_size:
                metadata = PyUnicode_DecodeASCII(
                    <const char *>source + commit.metadata, commit.metadata_size, NULL
                )
            offsets.append((commit.offset, commit.leader_epoch, metadata))
        return offsets

    def stamp(self, int acks, int64_t now_ms):
        cdef const uint8_t *source
        cdef uint8_t *p
        cdef Commit *commit
        cdef Frame *frame
        cdef int number
        self.acks = acks
        self.smallest_timestamp = now_ms
        self.max_timestamp = now_ms
        self.size_bytes = 0
        self.last_size_bytes = 0
        self.largest_size_bytes = 0
        self.max_timestamp_records = 0
        if not self.frames:
            return
        self.max_timestamp_records = self.frame[0].commits
        for number in range(self.frames):
            frame = &self.frame[number]
            self.size_bytes += frame.batch_bytes
            self.last_size_bytes = frame.batch_bytes
            if frame.batch_bytes > self.largest_size_bytes:
                self.largest_size_bytes = frame.batch_bytes
        source = self.source()
        self.batches = PyBytes_FromStringAndSize(NULL, self.size_bytes)
        p = <uint8_t *>PyBytes_AS_STRING(self.batches)
        commit = &self.commits[0]
        for number in range(self.frames):
            frame = &self.frame[number]
            self.put_batch(p, frame, commit, source, now_ms)
            put32(p + BATCH_CRC_POSITION, <uint32_t>compute_crc(
                PyMemoryView_FromMemory(
                    <char *>p + BATCH_CRC_FROM, frame.batch_bytes - BATCH_CRC_FROM, PyBUF_READ
                )
            ))
            p += frame.batch_bytes
            commit += frame.commits

    cdef void put_batch(
        self, uint8_t *p, const Frame *frame, const Commit *commit, const uint8_t *source, int64_t now_ms
    ) noexcept:
        cdef CommitKeyFields key
        cdef CommitValueFields value
        cdef RecordFields record
        cdef int number
        put64(p + BATCH_BASE_OFFSET_POSITION, 0)
        put32(p + ENTRY_SIZE_POSITION, frame.batch_bytes - ENTRY_PREFIX_BYTES)
        put32(p + BATCH_LEADER_EPOCH_POSITION, <uint32_t>-1)
        p[MAGIC_POSITION] = MAGIC_V2
        put16(p + BATCH_ATTRIBUTES_POSITION, 0)
        put32(p + BATCH_LAST_OFFSET_DELTA_POSITION, frame.commits - 1)
        put64(p + BATCH_BASE_TIMESTAMP_POSITION, <uint64_t>now_ms)
        put64(p + BATCH_MAX_TIMESTAMP_POSITION, <uint64_t>now_ms)
        put64(p + BATCH_PRODUCER_ID_POSITION, <uint64_t>-1)  # none
        put16(p + BATCH_PRODUCER_EPOCH_POSITION, <uint16_t>-1)
        put32(p + BATCH_BASE_SEQUENCE_POSITION, 0)  # as commits have it
        put32(p + BATCH_COUNT_POSITION, frame.commits)
        p += BATCH_HEADER_BYTES
        for number in range(frame.commits):
            key = key_of(source, commit, self.group_name)
            value = value_of(source, commit, now_ms)
            record = record_of(number, &key, &value)
            p = write_record(write_size_of_record(p, <int32_t>size_of_record(&record)), &record)
            write_commit_key(<uint8_t *>record.key.start, &key)
            write_commit_value(<uint8_t *>record.value.start, &value)
            commit += 1

    def batch(self, int number):
        if number < 0 or number >= self.frames:
            raise IndexError(f"batch {number} of {self.frames}")
        return (self.frame[number].commits, self.max_timestamp, -1, -1, 0, self.frame[number].batch_bytes)

    def data(self, int64_t first_offset, int32_t leader_epoch):
        cdef uint8_t *p
        cdef int number
        if not self.batches:
            return b""
        # Nobody else has seen these bytes.
        p = <uint8_t *>PyBytes_AS_STRING(self.batches)
        for number in range(self.frames):
            put64(p + BATCH_BASE_OFFSET_POSITION, <uint64_t>first_offset)
            put32(p + BATCH_LEADER_EPOCH_POSITION, <uint32_t>leader_epoch)
            first_offset += self.frame[number].commits
            p += self.frame[number].batch_bytes
        taken, self.batches = self.batches, b""
        return taken

    def answers(self):
        cdef const uint8_t *source
        cdef bytes answers
        cdef uint8_t *p
        cdef Commit *commit = &self.commits[0]
        cdef bint flexible = self.version >= FLEXIBLE_FROM
        cdef Py_ssize_t size = 0
        cdef int number, each
        if not self.frames:
            return b""
        source = self.source()
        for number in range(self.frames):
            size += self.frame[number].answer_bytes
        answers = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t *>PyBytes_AS_STRING(answers)
        for number in range(self.frames):
            put32(p, self.frame[number].answer_bytes - 4)
            put32(p + 4, <uint32_t>self.frame[number].correlation_id)
            p += 8
            if flexible:
                p[0] = 0
                p += 1
            if self.version >= THROTTLE_FROM:
                put32(p, 0)
                p += 4
            p = put_count(p, self.frame[number].topics, flexible)
            for each in range(self.frame[number].commits):
                if commit.begins:
                    if flexible:
                        if each:
                            p[0] = 0
                            p += 1
                        p[0] = <uint8_t>(commit.name_size + 1)
                        p += 1
                    else:
                        put16(p, <uint16_t>commit.name_size)
                        p += 2
                    memcpy(p, source + commit.name, commit.name_size)
                    p = put_count(p + commit.name_size, commit.begins, flexible)
                put32(p, <uint32_t>commit.partition)
                put16(p + 4, 0)
                p += 6
                if flexible:
                    p[0] = 0
                    p += 1
                commit += 1
            if flexible:
                put16(p, 0)  # no tags: of the last topic, of the answer
                p += 2
        return answers


cdef inline uint8_t *put_count(uint8_t *p, int count, bint flexible) noexcept nogil:
    if flexible:
        p[0] = <uint8_t>(count + 1)
        return p + 1
    put32(p, count)
    return p + 4


cdef inline CommitKeyFields key_of(const uint8_t *source, const Commit *commit, Span group) noexcept nogil:
    cdef CommitKeyFields key
    key.version = COMMIT_KEY_VERSION
    key.group.start = source + group.position
    key.group.size = <int32_t>group.size
    key.topic.start = source + commit.name
    key.topic.size = commit.name_size
    key.partition = commit.partition
    return key


cdef inline CommitValueFields value_of(const uint8_t *source, const Commit *commit, int64_t now_ms) noexcept nogil:
    cdef CommitValueFields value
    value.version = COMMIT_VALUE_VERSION
    value.offset = commit.offset
    value.leaderEpoch = commit.leader_epoch
    value.metadata.start = source + commit.metadata
    value.metadata.size = commit.metadata_size
    value.commitTimestamp = now_ms
    return value


cdef inline RecordFields record_of(
    int number, const CommitKeyFields *key, const CommitValueFields *value
) noexcept nogil:
    """The record of a commit, as old as its batch; key and value are written to where they start then."""
    cdef RecordFields record
    record.attributes = 0
    record.timestampDelta = 0
    record.offsetDelta = number
    record.key.start = NULL
    record.key.size = <int32_t>size_of_commit_key(key)
    record.value.start = NULL
    record.value.size = <int32_t>size_of_commit_value(value)
    record.headers = 0
    return record
