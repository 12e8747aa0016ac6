# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Loads committed offsets from decoded records, compiled. `_pyoffset_loading` states what each method means.

Every read is inside the payload: sizes are compared with the bytes that are left, and never added to a position
first.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

IMPLEMENTATION = "cython"

include "../../../kernel/_derived.pxi"
include "../../../kernel/_varint.pxi"
include "../../../kernel/_numbers.pxi"
include "../../../kernel/_derived_records.pxi"

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void *op)

cdef enum:
    LONGEST_REMEMBERED = 512


@cython.final
@cython.freelist(64)
cdef class StoredOffset:
    # No attribute is a container, so the garbage collector has nothing to do with them.
    cdef readonly int64_t offset
    cdef readonly int64_t commit_timestamp_ms
    cdef readonly int64_t expire_timestamp_ms
    cdef readonly int64_t written_at
    cdef readonly str metadata
    cdef readonly int32_t leader_epoch

    def __init__(
        self,
        int64_t offset,
        int32_t leader_epoch,
        str metadata not None,
        int64_t commit_timestamp_ms,
        int64_t expire_timestamp_ms,
        int64_t written_at,
    ):
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.written_at = written_at


cdef inline bint is_ascii(const Data *text) noexcept nogil:
    cdef Py_ssize_t at
    cdef uint8_t seen = 0
    for at in range(text.size):
        seen |= text.start[at]
    return seen < 0x80


cdef class OffsetLoader:
    cdef object stored_of
    cdef dict groups
    cdef dict topics
    cdef dict partitions
    cdef uint8_t last_name[LONGEST_REMEMBERED]
    cdef Py_ssize_t last_size
    cdef dict last_stored

    def __init__(self, stored_of):
        self.stored_of = stored_of
        self.groups = {}
        self.topics = {}
        self.partitions = {}
        self.last_size = -1

    def load(self, payload, records, Py_ssize_t number, Py_ssize_t end):
        cdef int64_t[::1] offsets = records.offset
        cdef int64_t[::1] key_starts = records.key_start
        cdef int64_t[::1] key_sizes = records.key_size
        cdef int64_t[::1] value_starts = records.value_start
        cdef int64_t[::1] value_sizes = records.value_size
        cdef const uint8_t *key = NULL
        cdef const uint8_t *value = NULL
        cdef Py_buffer held
        if number < 0 or end > offsets.shape[0]:
            raise IndexError(f"records {number} to {end} of {offsets.shape[0]}")
        PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
        try:
            while number < end:
                key = inside(&held, key_starts[number], key_sizes[number])
                value = inside(&held, value_starts[number], value_sizes[number])
                if key == NULL or (value == NULL and value_sizes[number] >= 0):
                    break
                if not self.load_one(key, key_sizes[number], value, value_sizes[number], offsets[number]):
                    break
                number += 1
        finally:
            PyBuffer_Release(&held)
        return number

    cdef bint load_one(
        self, const uint8_t *key, Py_ssize_t key_size, const uint8_t *value, Py_ssize_t value_size, int64_t at
    ) except -1:
        cdef CommitKeyFields named
        cdef CommitValueFields commit
        cdef dict stored
        cdef tuple partition
        cdef StoredOffset new
        if (
            read_commit_key(key, key + key_size, &named) == NULL
            or <uint16_t>named.version > COMMIT_KEY_VERSION
            or not is_ascii(&named.group)
            or not is_ascii(&named.topic)
        ):
            return False
        if value != NULL and (
            read_commit_value(value, value + value_size, &commit) == NULL
            or commit.version != COMMIT_VALUE_VERSION
            or not is_ascii(&commit.metadata)
        ):
            return False
        stored = self.stored(&named.group)
        partition = self.partition(&named.topic, named.partition)
        if value == NULL:
            stored.pop(partition, None)
            return True
        new = StoredOffset.__new__(StoredOffset)
        new.offset = commit.offset
        new.leader_epoch = commit.leaderEpoch
        new.metadata = ""
        if commit.metadata.size:
            new.metadata = PyUnicode_DecodeASCII(
                <const char *>commit.metadata.start, commit.metadata.size, NULL
            )
        new.commit_timestamp_ms = commit.commitTimestamp
        new.expire_timestamp_ms = -1
        new.written_at = at
        stored[partition] = new
        return True

    cdef dict stored(self, const Data *group):
        """The offsets of a group. Records of one group often follow each other."""
        cdef bytes name
        if group.size == self.last_size and memcmp(group.start, self.last_name, group.size) == 0:
            return self.last_stored
        name = PyBytes_FromStringAndSize(<const char *>group.start, group.size)
        stored = self.groups.get(name)
        if stored is None:
            stored = self.groups[name] = self.stored_of(name.decode("ascii"))
        if group.size <= LONGEST_REMEMBERED:
            memcpy(self.last_name, group.start, group.size)
            self.last_size = group.size
            self.last_stored = stored
        return stored

    cdef tuple partition(self, const Data *topic, int32_t number):
        """A topic and a partition. Groups share the tuples of partitions that several of them have."""
        cdef bytes name = PyBytes_FromStringAndSize(<const char *>topic.start, topic.size)
        cdef dict known = self.partitions.get(name)
        cdef tuple partition
        if known is None:
            known = self.partitions[name] = {}
            self.topics[name] = name.decode("ascii")
        partition = known.get(number)
        if partition is None:
            partition = known[number] = (self.topics[name], number)
            # Neither a text nor a number refers to anything.
            PyObject_GC_UnTrack(<PyObject *>partition)
        return partition


cdef inline const uint8_t *inside(const Py_buffer *held, int64_t start, int64_t size) noexcept nogil:
    """Where a span begins; NULL if it is null, or not inside the buffer."""
    if size < 0 or start < 0 or start > held.len or size > held.len - start:
        return NULL
    return <const uint8_t *>held.buf + start
