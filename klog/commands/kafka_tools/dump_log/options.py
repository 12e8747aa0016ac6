"""The options of Kafka's own dump tool, as options of `klog dump-segment`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from klog.commands.shared.connection import Version
from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.commands.shared.records.plan import Decoder, KafkaFlags
from klog.formats.constants import INT32_MAX

DEFAULT_FLAGS: Final = KafkaFlags()


_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"


def _decoder_class(name: str) -> Any:  # noqa: ANN401 (of the field's type)
    return valued("CLASS", "A decoder class of Kafka.", name, without_value={name: _DECODER})


@option_set("Kafka's own options (they imply --format kafka)")
class KafkaOptions:
    """Kafka's flags by Kafka's names."""

    print_data_log: bool = flag("Print records with keys and values.")
    deep_iteration: bool = flag("Print the records of each batch.")
    skip_record_metadata: bool = flag("Print records without metadata.")
    max_bytes: int = optional(INT32_MAX, "Read at most so many bytes of batches per file.", metavar="BYTES")
    max_message_size: int = optional(
        DEFAULT_FLAGS.max_message_size, "The size of the largest batch.", metavar="BYTES"
    )
    key_decoder_class: str | None = _decoder_class("--key-decoder-class")
    value_decoder_class: str | None = _decoder_class("--value-decoder-class")
    offsets_decoder: bool = flag("Decode records of __consumer_offsets.")
    transaction_log_decoder: bool = flag("Decode records of __transaction_state.")
    cluster_metadata_decoder: bool = flag("Decode records of __cluster_metadata.")
    remote_log_metadata_decoder: bool = flag("Decode records of __remote_log_metadata.")
    share_group_state_decoder: bool = flag("Decode records of __share_group_state, as Kafka 4 does.")
    index_sanity_check: bool = flag("Check indexes; do not print them.")
    verify_index_only: bool = flag("Check indexes against the log; do not print them.")
    version: Version = False

    def flags(self) -> KafkaFlags:
        """The flags that the options make."""
        given: dict[str, Any] = {each.name: getattr(self, each.name, None) for each in fields(KafkaFlags)}
        return KafkaFlags(**{**given, "decoder": self._decoder()})

    def _decoder(self) -> Decoder | None:
        """The chosen decoder; of several, Kafka's tool takes the first in this order."""
        given = {
            Decoder.OFFSETS: self.offsets_decoder,
            Decoder.TRANSACTION_LOG: self.transaction_log_decoder,
            Decoder.CLUSTER_METADATA: self.cluster_metadata_decoder,
            Decoder.REMOTE_LOG_METADATA: self.remote_log_metadata_decoder,
            Decoder.SHARE_GROUP_STATE: self.share_group_state_decoder,
        }
        return next((decoder for decoder, is_given in given.items() if is_given), None)
