# What a follower has to know of the batches that it has fetched, all at once; `_pyfollow` states the semantics.

cdef enum:
    PRODUCERS_SEEN = 64
    BATCHES_REMEMBERED = 5


cdef struct Seen:  # a producer of these batches
    int64_t producer_id
    int64_t epoch
    int64_t batches
    bint in_transaction


cdef inline Seen *find_seen(Seen *seen, int *count, int64_t producer_id, int64_t epoch, bint *new) noexcept nogil:
    """The entry of a producer, a new one if there is none; NULL if there are too many."""
    cdef int i
    for i in range(count[0]):
        if seen[i].producer_id == producer_id and seen[i].epoch == epoch:
            new[0] = False
            return &seen[i]
    new[0] = True
    if count[0] == PRODUCERS_SEEN:
        return NULL
    i = count[0]
    count[0] = i + 1
    seen[i].producer_id = producer_id
    seen[i].epoch = epoch
    seen[i].batches = 0
    seen[i].in_transaction = False
    return &seen[i]


cdef void mark_producers(const Batches *batches, Py_ssize_t rows, int64_t *marks) noexcept nogil:
    """Mark the batches that matter to the state of their producers."""
    cdef Seen seen[PRODUCERS_SEEN]
    cdef Seen *one
    cdef int count = 0
    cdef bint new = False
    cdef Py_ssize_t row
    cdef int64_t attributes
    for row in range(rows):
        marks[row] = 0
        if batches.producer_id[row] < 0:
            continue
        attributes = batches.attributes[row]
        one = find_seen(seen, &count, batches.producer_id[row], 0, &new)
        marks[row] = new or one == NULL or (attributes & CONTROL_BIT) != 0
        if one == NULL:
            continue
        if attributes & CONTROL_BIT:
            one.in_transaction = False
        elif attributes & TRANSACTIONAL_BIT and not one.in_transaction:
            one.in_transaction = True
            marks[row] = 1
    count = 0
    row = rows
    while row > 0:
        row -= 1
        if batches.producer_id[row] < 0 or batches.attributes[row] & CONTROL_BIT:
            continue
        one = find_seen(seen, &count, batches.producer_id[row], batches.producer_epoch[row], &new)
        if one == NULL:
            marks[row] = 1
        elif one.batches < BATCHES_REMEMBERED:
            one.batches += 1
            marks[row] = 1


def follow(table, int64_t end_offset, int64_t leader_epoch, found):
    cdef Batches batches
    cdef array.array valid = column(table, "valid")
    cdef array.array epochs = column(found, "epochs"), producers = column(found, "producers")
    cdef Py_ssize_t row = 0, rows, taken, entries = 0, kept = 0
    cdef int64_t last = end_offset - 1, largest = -1, epoch_before = 0, first_before = 0
    cdef bint is_plain = True
    cdef int64_t *pairs
    cdef int64_t *marks
    open_batches(&batches, table)
    if len(valid) != batches.rows:
        raise UsageError("follow of a table that was not verified")
    resize_column(epochs, 2 * batches.rows)
    resize_column(producers, batches.rows)
    pairs, marks = longs(epochs), longs(producers)
    rows = batches.rows
    taken = rows
    for row in range(rows):
        if batches.leader_epoch[row] > leader_epoch:
            taken = row
            break
        if (
            not valid.data.as_longlongs[row]
            or batches.magic[row] < 2
            or batches.last_offset[row] <= last
            or (row == 0 and batches.base_offset[row] < end_offset)
        ):
            is_plain = False
            taken = row
            break
        last = batches.last_offset[row]
        if row == 0 or batches.max_timestamp[row] > largest:
            largest = batches.max_timestamp[row]
        if row == 0 or batches.leader_epoch[row] != epoch_before or batches.base_offset[row] < first_before:
            epoch_before = batches.leader_epoch[row]
            first_before = batches.base_offset[row]
            pairs[2 * entries] = epoch_before
            pairs[2 * entries + 1] = first_before
            entries += 1
    mark_producers(&batches, taken, marks)
    for row in range(taken):
        if marks[row]:
            marks[kept] = row
            kept += 1
    resize_column(epochs, 2 * entries)
    resize_column(producers, kept)
    found.rows = taken
    found.is_plain = is_plain
    found.max_timestamp = largest
