# Shared by the compiled kernels: buffers that are held while they are read, and columns (`array('q')`) as C
# pointers.
#
# A pointer into a column is valid until the column is resized. No Python code runs between opening columns and
# the last write through their pointers, except the checksums, which do not touch columns.

from cpython cimport array
from cpython.buffer cimport (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)


cdef extern from *:
    """
    /* A macro, because Cython declares the struct further down. */
    #define klog_exports(column) (((struct arrayobject *)(column))->ob_exports)
    """
    int klog_exports(object column)


cdef struct Buffer:
    Py_buffer view
    const uint8_t *start
    int64_t size


cdef int open_buffer(Buffer *buffer, data) except -1:
    """Hold `data`; the caller releases `buffer.view`."""
    PyObject_GetBuffer(data, &buffer.view, PyBUF_SIMPLE)
    buffer.start = <const uint8_t *>buffer.view.buf
    buffer.size = buffer.view.len
    return 0


cdef class Span:
    """Part of a held buffer, passed to a checksum. It saves a memoryview for each batch."""

    cdef const uint8_t *start
    cdef Py_ssize_t size

    cdef inline void point(self, const uint8_t *start, Py_ssize_t size) noexcept:
        self.start = start
        self.size = size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.start, self.size, 1, flags)

    def __len__(self):
        return self.size


cdef int64_t *longs(array.array one) except NULL:
    """The values of the column. The pointer is not NULL for an empty column, but nothing may be read from it."""
    if one.ob_descr.itemsize != 8 or one.ob_descr.typecode_char != c"q":
        raise UsageError("a column is not an array of 64-bit integers")
    return <int64_t *>one.data.as_longlongs if len(one) else &no_values


cdef int64_t no_values = 0


cdef inline int resize_column(array.array one, Py_ssize_t rows) except -1:
    """New rows are not initialised. Raises `BufferError` while a buffer of the array is exported."""
    if rows != len(one) and klog_exports(one):
        raise BufferError("cannot resize an array that is exporting buffers")
    array.resize_smart(one, rows)
    return 0
