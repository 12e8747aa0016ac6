"""Batch headers as Arrow, one row a batch; `klog.kernel.arrow` does the same for records.

Column names and meanings are those of the JSON Lines batches (`klog dump-segment --batches --format jsonl`).
Values that a format does not store are null: `baseOffset` and `count` of compressed sets of magic 0 and 1,
`count` of their messages, timestamps, the delete horizon, and `valid` without verification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.formats.constants import DELETE_HORIZON_BIT, INT32_MAX
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, BatchTable

if TYPE_CHECKING:
    import pyarrow as pa


def schema() -> pa.Schema:
    """The Arrow schema of batch headers."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("position", pa.int64(), nullable=False),
            pa.field("size", pa.int32(), nullable=False),
            pa.field("baseOffset", pa.int64()),
            pa.field("lastOffset", pa.int64(), nullable=False),
            pa.field("magic", pa.int8(), nullable=False),
            pa.field("count", pa.int32()),
            pa.field("maxTimestamp", pa.timestamp("ms", "UTC")),
            pa.field("timestampType", pa.string(), nullable=False),
            pa.field("codec", pa.string(), nullable=False),
            pa.field("checksum", pa.uint32(), nullable=False),
            pa.field("valid", pa.bool_()),
            pa.field("producerId", pa.int64(), nullable=False),
            pa.field("producerEpoch", pa.int16(), nullable=False),
            pa.field("baseSequence", pa.int32(), nullable=False),
            pa.field("lastSequence", pa.int32(), nullable=False),
            pa.field("partitionLeaderEpoch", pa.int32(), nullable=False),
            pa.field("isTransactional", pa.bool_(), nullable=False),
            pa.field("isControl", pa.bool_(), nullable=False),
            pa.field("deleteHorizonMs", pa.timestamp("ms", "UTC")),
        ]
    )


def to_arrow(table: BatchTable) -> pa.RecordBatch:
    """The rows of `table`, copied."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from klog.kernel.arrow import from_attributes

    raw = {name: pa.array(getattr(table, name), pa.int64()) for name in BatchTable.COLUMNS if name != "valid"}
    legacy = pc.less(raw["magic"], 2)
    fields = {"attributes": raw["attributes"], "magic": raw["magic"]}
    horizon = pc.and_(
        pc.not_equal(pc.bit_wise_and(raw["attributes"], DELETE_HORIZON_BIT), 0), pc.invert(legacy)
    )
    delta = pc.subtract(raw["last_offset"], raw["base_offset"])
    sequence = pc.bit_wise_and(pc.add(raw["base_sequence"], delta), INT32_MAX)
    none = pa.scalar(None, pa.int64())
    verified = len(table.valid) == len(table)
    columns: dict[str, Any] = {
        "position": raw["position"],
        "size": raw["size"],
        "baseOffset": _without(raw["base_offset"], OFFSET_UNKNOWN, legacy),
        "lastOffset": raw["last_offset"],
        "magic": raw["magic"],
        "count": _without(raw["count"], COUNT_UNKNOWN, legacy),
        "maxTimestamp": _without(raw["max_timestamp"], -1, pa.scalar(True)),
        "timestampType": from_attributes("timestampType", fields),
        "codec": from_attributes("codec", fields),
        "checksum": raw["crc"],
        "valid": pa.array(table.valid).cast(pa.bool_()) if verified else pa.nulls(len(table), pa.bool_()),
        "producerId": raw["producer_id"],
        "producerEpoch": raw["producer_epoch"],
        "baseSequence": raw["base_sequence"],
        "lastSequence": pc.if_else(pc.less(raw["base_sequence"], 0), pa.scalar(-1, pa.int64()), sequence),
        "partitionLeaderEpoch": raw["leader_epoch"],
        "isTransactional": from_attributes("isTransactional", fields),
        "isControl": from_attributes("isControl", fields),
        "deleteHorizonMs": pc.if_else(horizon, raw["base_timestamp"], none),
    }
    wanted = schema()
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in wanted], schema=wanted
    )


def _without(values: pa.Array, missing: int, where: pa.Array | pa.Scalar) -> pa.Array:
    """`values` with null for `missing` where `where` is true."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.and_(pc.equal(values, missing), where), pa.scalar(None, pa.int64()), values)
