# Shared by the compiled kernels: buffers held while they are read, and columns (`array('q')`) as C pointers.
#
# Pointers into columns are good until a column is resized; nothing here runs Python code between opening
# columns and the last write through them, except the checksums, which know nothing of the columns.

cdef extern from *:
    """
    /* A macro, as Cython declares the struct further down. */
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
    """Some bytes of a held buffer, lent to a checksum without making a memoryview for each batch."""

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
    """The column's values; not NULL for an empty column either, which may not be read."""
    if one.ob_descr.itemsize != 8 or one.ob_descr.typecode_char != c"q":
        raise UsageError("a column is not an array of 64-bit integers")
    return <int64_t *>one.data.as_longlongs if len(one) else &no_values


cdef int64_t no_values = 0


cdef inline int resize_column(array.array one, Py_ssize_t rows) except -1:
    """New rows are not initialised. As `array` itself, refuses while somebody looks into its memory."""
    if rows != len(one) and klog_exports(one):
        raise BufferError("cannot resize an array that is exporting buffers")
    array.resize_smart(one, rows)
    return 0
