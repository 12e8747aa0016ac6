cpdef validate(data, config, long long next_offset, long long leader_epoch, long long now_ms, origin=*, opinions=*)


cdef _validate_batch(
    data,
    tuple header,
    config,
    long long next_offset,
    long long leader_epoch,
    long long now_ms,
    origin,
    opinions,
)
