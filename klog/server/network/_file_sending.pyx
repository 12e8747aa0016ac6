# cython: boundscheck=False, wraparound=False
# The compiled form of `_pyfile_sending`, which states the meaning: all calls without the interpreter lock, once.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from posix.types cimport off_t

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_CORK

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int sock, const void *data, size_t size, int flags)
    int setsockopt(int sock, int level, int option, const void *value, unsigned int size)
    int MSG_MORE
    int MSG_NOSIGNAL

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int sock, int file, off_t *position, size_t size)

IMPLEMENTATION = "cython"


cdef void set_cork(int sock, int on) noexcept nogil:
    # A socket that is not TCP has none, which is no error.
    setsockopt(sock, IPPROTO_TCP, TCP_CORK, &on, sizeof(on))


def send_with_file(sock, bytes head, int file, off_t position, size_t size, bytes tail):
    cdef int to = sock.fileno()
    cdef int failure = 0
    cdef bint ended = False
    cdef const char *head_at = PyBytes_AS_STRING(head)
    cdef const char *tail_at = PyBytes_AS_STRING(tail)
    cdef ssize_t head_left = PyBytes_GET_SIZE(head)
    cdef ssize_t tail_left = PyBytes_GET_SIZE(tail)
    cdef ssize_t taken = 0
    cdef ssize_t total = 0
    with nogil:
        if tail_left:
            set_cork(to, True)
        if head_left:
            taken = send(to, head_at, head_left, MSG_MORE | MSG_NOSIGNAL)
            if taken < 0:
                failure = errno
            else:
                total = taken
        if taken == head_left:
            taken = sendfile(to, file, &position, size)
            if taken < 0:
                failure = errno
            elif taken == 0:
                ended = True
            else:
                total += taken
                if <size_t>taken == size and tail_left:
                    taken = send(to, tail_at, tail_left, MSG_NOSIGNAL)
                    if taken > 0:
                        total += taken
        if tail_left:
            set_cork(to, False)
    if total:
        return total
    if ended:
        raise EOFError
    # The exception's class follows from the number: BlockingIOError, BrokenPipeError, ...
    raise OSError(EAGAIN if failure == EINTR else failure, "cannot send")
