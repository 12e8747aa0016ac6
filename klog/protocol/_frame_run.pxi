# What readers of runs share: frames of the usual kind that follow each other in a buffer, read in one pass.
#
# Every read is inside the buffer: sizes are compared with the bytes that are left, and never added to a
# position first.

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from klog.formats.checksums import crc32c

include "../kernel/_varint.pxi"
include "../kernel/_derived.pxi"
include "../kernel/_numbers.pxi"
include "../kernel/_derived_records.pxi"
include "_fields.pxi"

cdef extern from "Python.h":
    enum:
        PyBUF_READ

cdef enum:
    MOST_FRAMES = 64
    REQUEST_HEAD_BYTES = 14  # of a frame: size, key, version, correlation id, size of the client id

cdef object compute_crc = crc32c


cdef class FrameRun:
    cdef bytearray buffer
    cdef readonly int frames
    cdef readonly int version
    cdef readonly int acks
    cdef readonly Py_ssize_t end
    cdef readonly int64_t size_bytes
    cdef readonly int64_t last_size_bytes
    cdef readonly int64_t largest_size_bytes
    cdef readonly int64_t records
    cdef readonly int64_t smallest_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_timestamp_records
    cdef readonly bint keyless
    cdef readonly bint has_producer_ids

    def read(self, bytearray buffer not None, Py_ssize_t start, Py_ssize_t end):
        cdef Py_buffer held
        # While it is held nobody can resize it.
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        self.buffer = buffer
        self.reset()
        self.end = start
        if end > held.len:
            end = held.len
        try:
            while self.frames < MOST_FRAMES and 0 <= self.end < end:
                if not self.take(<const uint8_t *>held.buf, self.end, end):
                    break
        finally:
            PyBuffer_Release(&held)
        return self.frames

    cdef void reset(self) noexcept:
        """Forget all frames."""

    cdef bint take(self, const uint8_t *data, Py_ssize_t start, Py_ssize_t end) except -1:
        """Read the frame at `start`; whether it is one of the run."""
        return False

    cdef const uint8_t *source(self) except NULL:
        """The buffer, if it still has the bytes that were read."""
        if PyByteArray_GET_SIZE(self.buffer) < self.end:
            raise IndexError("the buffer has become smaller than what was read of it")
        return <const uint8_t *>PyByteArray_AS_STRING(self.buffer)


cdef inline const uint8_t *after_head(
    const uint8_t *p, Py_ssize_t left, int api_key, int *version, const uint8_t **stop
) noexcept nogil:
    """Where a frame's body begins, with its version and its end; NULL unless it is a whole frame of this API.

    The versions are `FIRST_VERSION` to `LAST_VERSION`; the head has no tagged fields.
    """
    cdef int32_t follows
    cdef int16_t client_size
    if left < REQUEST_HEAD_BYTES:
        return NULL
    follows = <int32_t>be32(p)
    if follows < REQUEST_HEAD_BYTES - 4 or follows > left - 4 or be16(p + 4) != api_key:
        return NULL
    stop[0] = p + 4 + follows
    version[0] = <int16_t>be16(p + 6)
    if version[0] < FIRST_VERSION or version[0] > LAST_VERSION:
        return NULL
    client_size = <int16_t>be16(p + 12)
    p += REQUEST_HEAD_BYTES
    if client_size > 0:
        if client_size > stop[0] - p:
            return NULL
        p += client_size
    if version[0] >= FLEXIBLE_FROM:
        if p >= stop[0] or p[0] != 0:
            return NULL
        p += 1
    return p
