"""The options that say how records are delivered, for `klog produce` and Kafka's console producer."""

from __future__ import annotations

from enum import StrEnum

from klog.commands.shared.option_sets import flag, option_set, optional


class Codec(StrEnum):
    """Kafka's names of the codecs, in the order of the codec ids."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """How many replicas must have a record before it counts as delivered."""

    NOBODY = "0"
    LEADER = "1"
    ALL = "all"
    ALL_AS_NUMBER = "-1"


@option_set("Delivery")
class DeliveryOptions:
    """How records are sent, and what is reported."""

    compression_type: Codec = optional(Codec.NONE, "The codec of the batches.", "--compression-type", "-z")
    acks: Acks = optional(Acks.ALL, "How many replicas must have a record.")
    idempotence: bool | None = optional(
        None,
        "Write no duplicates after lost connections. [default: with --acks all]",
        "--idempotence/--no-idempotence",
    )
    quiet: bool = flag("Report only failures.", "--quiet", "-q")
