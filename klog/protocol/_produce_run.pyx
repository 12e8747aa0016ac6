# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads the usual Produce frames in one pass. `_produce_run.pyi` states what each method means."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int8_t

IMPLEMENTATION = "cython"

cdef enum:
    API_KEY = 0
    FIRST_VERSION = 7
    FLEXIBLE_FROM = 9
    LAST_VERSION = 11

include "_frame_run.pxi"
include "../kernel/_record_checks.pxi"


cdef struct Batch:
    int64_t max_timestamp
    int64_t smallest_timestamp
    int64_t producer_id
    Py_ssize_t position
    Py_ssize_t frame_end
    int32_t correlation_id
    int32_t size
    int32_t records
    int32_t base_sequence
    int16_t producer_epoch
    bint keyless


cdef class ProduceRun(FrameRun):
    cdef Batch batches[MOST_FRAMES]
    cdef Py_ssize_t name_position
    cdef Py_ssize_t name_size
    cdef Py_ssize_t id_position
    cdef Py_ssize_t id_size  # -1 if there is no transactional id
    cdef readonly int partition

    cdef void reset(self) noexcept:
        self.frames = 0
        self.size_bytes = 0
        self.last_size_bytes = 0
        self.largest_size_bytes = 0
        self.records = 0
        self.smallest_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_records = 0
        self.keyless = False
        self.has_producer_ids = False

    cdef bint take(self, const uint8_t *data, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef const uint8_t *p
        cdef const uint8_t *stop
        cdef const uint8_t *name
        cdef const uint8_t *transactional_id
        cdef Py_ssize_t name_size, id_size, size
        cdef int32_t partition
        cdef int version, acks
        cdef uint32_t length
        cdef bint flexible
        p = after_head(data + start, end - start, API_KEY, &version, &stop)
        if p == NULL:
            return False
        flexible = version >= FLEXIBLE_FROM
        if flexible:
            if p >= stop or p[0] >= 0x80:
                return False
            id_size = p[0] - 1
            p += 1
        else:
            if stop - p < 2:
                return False
            id_size = <int16_t>be16(p)
            if id_size < -1:
                return False
            p += 2
        transactional_id = p
        if id_size > 0:
            if id_size > stop - p:
                return False
            p += id_size
        # The least that can follow: as many bytes as the fields up to the name's size take.
        if flexible:
            if stop - p < 8 or p[6] != 2 or p[7] < 2 or p[7] >= 0x80:
                return False
            acks = <int16_t>be16(p)
            name_size = p[7] - 1
            p += 8
            if stop - p < name_size + 5:
                return False
            name = p
            p += name_size
            if p[0] != 2:
                return False
            partition = <int32_t>be32(p + 1)
            p += 5
            p = uvarint32(p, stop, &length)
            if p == NULL or length == 0 or stop - p != <Py_ssize_t>length - 1 + 3:
                return False
            size = <Py_ssize_t>length - 1
            if stop[-1] != 0 or stop[-2] != 0 or stop[-3] != 0:
                return False
        else:
            if stop - p < 12 or be32(p + 6) != 1:
                return False
            acks = <int16_t>be16(p)
            name_size = <int16_t>be16(p + 10)
            p += 12
            if name_size <= 0 or stop - p < name_size + 12:
                return False
            name = p
            p += name_size
            if be32(p) != 1:
                return False
            partition = <int32_t>be32(p + 4)
            size = <int32_t>be32(p + 8)
            p += 12
            if size < 0 or stop - p != size:
                return False
        if acks < -1 or acks > 1 or size < BATCH_HEADER_BYTES:
            return False
        if self.frames and (
            version != self.version
            or acks != self.acks
            or partition != self.partition
            or name_size != self.name_size
            or memcmp(name, data + self.name_position, name_size) != 0
            or id_size != self.id_size
            or (id_size > 0 and memcmp(transactional_id, data + self.id_position, id_size) != 0)
        ):
            return False
        if not self.check_batch(data, p, size, id_size >= 0):
            return False
        self.version = version
        self.acks = acks
        self.partition = partition
        self.name_position = name - data
        self.name_size = name_size
        self.id_position = transactional_id - data
        self.id_size = id_size
        self.batches[self.frames].correlation_id = <int32_t>be32(data + start + 8)
        self.batches[self.frames].frame_end = stop - data
        self.add(self.frames)
        return True

    cdef bint check_batch(
        self, const uint8_t *data, const uint8_t *p, Py_ssize_t size, bint is_transactional
    ) except -1:
        """Whether the bytes are a batch that stands in the log as it came, but for its offset and epoch.

        Those of a transaction are of one producer.
        """
        cdef Batch *batch = &self.batches[self.frames]
        cdef CheckedRecords checked
        cdef int32_t count = <int32_t>be32(p + BATCH_COUNT_POSITION)
        if (
            be64(p + BATCH_BASE_OFFSET_POSITION) != 0
            or <int64_t><int32_t>be32(p + ENTRY_SIZE_POSITION) != size - ENTRY_PREFIX_BYTES
            or p[MAGIC_POSITION] != MAGIC_V2
            or be16(p + BATCH_ATTRIBUTES_POSITION) != (TRANSACTIONAL_BIT if is_transactional else 0)
            or count <= 0
            or <int64_t><int32_t>be32(p + BATCH_LAST_OFFSET_DELTA_POSITION) + 1 != count
        ):
            return False
        batch.producer_id = <int64_t>be64(p + BATCH_PRODUCER_ID_POSITION)
        batch.producer_epoch = <int16_t>be16(p + BATCH_PRODUCER_EPOCH_POSITION)
        batch.base_sequence = <int32_t>be32(p + BATCH_BASE_SEQUENCE_POSITION)
        batch.max_timestamp = <int64_t>be64(p + BATCH_MAX_TIMESTAMP_POSITION)
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            return False
        if is_transactional and (
            batch.producer_id < 0
            or batch.producer_id != self.batches[0].producer_id
            or batch.producer_epoch != self.batches[0].producer_epoch
        ):
            return False
        if <uint32_t>compute_crc(
            PyMemoryView_FromMemory(<char *>p + BATCH_CRC_FROM, size - BATCH_CRC_FROM, PyBUF_READ)
        ) != be32(p + BATCH_CRC_POSITION):
            return False
        checked = look_through(
            p + BATCH_HEADER_BYTES, p + size, <int64_t>be64(p + BATCH_BASE_TIMESTAMP_POSITION), count
        )
        if not checked.valid or checked.smallest < -1 or checked.largest != batch.max_timestamp:
            return False
        batch.smallest_timestamp = checked.smallest
        batch.keyless = checked.keyless
        batch.position = p - data
        batch.size = <int32_t>size
        batch.records = count
        return True

    cdef void add(self, int number) noexcept:
        """Count the next batch in."""
        cdef Batch *batch = &self.batches[number]
        self.frames = number + 1
        self.end = batch.frame_end
        self.size_bytes += batch.size
        self.last_size_bytes = batch.size
        if batch.size > self.largest_size_bytes:
            self.largest_size_bytes = batch.size
        self.records += batch.records
        if batch.smallest_timestamp != -1:
            if self.smallest_timestamp == -1 or batch.smallest_timestamp < self.smallest_timestamp:
                self.smallest_timestamp = batch.smallest_timestamp
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self.max_timestamp_records = self.records
        if batch.keyless:
            self.keyless = True
        if batch.producer_id >= 0:
            self.has_producer_ids = True

    def keep(self, int frames):
        cdef int number
        if frames < 0 or frames > self.frames:
            raise IndexError(f"{frames} of {self.frames} frames")
        self.reset()
        for number in range(frames):
            self.add(number)

    @property
    def topic(self):
        if not self.frames:
            return b""
        return PyBytes_FromStringAndSize(<const char *>self.source() + self.name_position, self.name_size)

    @property
    def is_transactional(self):
        return self.frames > 0 and self.id_size >= 0

    @property
    def transactional_id(self):
        if not self.frames or self.id_size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.source() + self.id_position, self.id_size)

    def batch(self, int number):
        cdef Batch *batch = &self.batches[number]
        if number < 0 or number >= self.frames:
            raise IndexError(f"batch {number} of {self.frames}")
        return (
            batch.records,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.size,
        )

    def data(self, int64_t first_offset, int32_t leader_epoch):
        cdef const uint8_t *source
        cdef bytes copy
        cdef uint8_t *p
        cdef Batch *batch
        cdef int number
        if not self.frames:
            return b""
        source = self.source()
        copy = PyBytes_FromStringAndSize(NULL, self.size_bytes)
        p = <uint8_t *>PyBytes_AS_STRING(copy)
        for number in range(self.frames):
            batch = &self.batches[number]
            memcpy(p, source + batch.position, batch.size)
            put64(p + BATCH_BASE_OFFSET_POSITION, <uint64_t>first_offset)
            put32(p + BATCH_LEADER_EPOCH_POSITION, <uint32_t>leader_epoch)
            first_offset += batch.records
            p += batch.size
        return copy

    def answers(
        self, bytes template not None, Py_ssize_t numbers_at, int64_t first_offset, int64_t log_start_offset
    ):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(template)
        cdef bytes answers
        cdef uint8_t *p
        cdef int number
        if numbers_at < 8 or numbers_at > size - 30:
            raise IndexError(f"numbers at {numbers_at} of an answer of {size} bytes")
        answers = PyBytes_FromStringAndSize(NULL, size * self.frames)
        p = <uint8_t *>PyBytes_AS_STRING(answers)
        for number in range(self.frames):
            memcpy(p, PyBytes_AS_STRING(template), size)
            put32(p + 4, <uint32_t>self.batches[number].correlation_id)
            put64(p + numbers_at + 6, <uint64_t>first_offset)
            put64(p + numbers_at + 22, <uint64_t>log_start_offset)
            first_offset += self.batches[number].records
            p += size
        return answers
