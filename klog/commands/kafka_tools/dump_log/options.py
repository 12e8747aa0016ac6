"""The options of Kafka's own dump tool, as options of `klog dump-segment`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from klog.commands.shared.connection import Version
from klog.commands.shared.option_sets import option, optional
from klog.commands.shared.records.plan import Decoder, KafkaFlags
from klog.formats.constants import INT32_MAX

DEFAULT_FLAGS: Final = KafkaFlags()
_PANEL: Final = "Kafka's own options (they imply --format kafka)"


_DECODER_CLASS: Final = option(_PANEL, "A decoder class of Kafka.", metavar="CLASS")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Kafka's flags by Kafka's names."""

    print_data_log: bool = optional(False, _PANEL, "Print records with keys and values.", "--print-data-log")
    deep_iteration: bool = optional(False, _PANEL, "Print the records of each batch.", "--deep-iteration")
    skip_record_metadata: bool = optional(
        False, _PANEL, "Print records without metadata.", "--skip-record-metadata"
    )
    max_bytes: int = optional(
        INT32_MAX, _PANEL, "Read at most so many bytes of batches per file.", metavar="BYTES"
    )
    max_message_size: int = optional(
        DEFAULT_FLAGS.max_message_size, _PANEL, "The size of the largest batch.", metavar="BYTES"
    )
    key_decoder_class: Annotated[str | None, _DECODER_CLASS] = None
    value_decoder_class: Annotated[str | None, _DECODER_CLASS] = None
    offsets_decoder: bool = optional(
        False, _PANEL, "Decode records of __consumer_offsets.", "--offsets-decoder"
    )
    transaction_log_decoder: bool = optional(
        False, _PANEL, "Decode records of __transaction_state.", "--transaction-log-decoder"
    )
    cluster_metadata_decoder: bool = optional(
        False, _PANEL, "Decode records of __cluster_metadata.", "--cluster-metadata-decoder"
    )
    remote_log_metadata_decoder: bool = optional(
        False, _PANEL, "Decode records of __remote_log_metadata.", "--remote-log-metadata-decoder"
    )
    share_group_state_decoder: bool = optional(
        False,
        _PANEL,
        "Decode records of __share_group_state, as Kafka 4 does.",
        "--share-group-state-decoder",
    )
    index_sanity_check: bool = optional(
        False, _PANEL, "Check indexes; do not print them.", "--index-sanity-check"
    )
    verify_index_only: bool = optional(
        False, _PANEL, "Check indexes against the log; do not print them.", "--verify-index-only"
    )
    version: Version = False

    def flags(self) -> KafkaFlags:
        """The flags that the options make."""
        return KafkaFlags(
            print_data_log=self.print_data_log,
            deep_iteration=self.deep_iteration,
            skip_record_metadata=self.skip_record_metadata,
            max_bytes=self.max_bytes,
            max_message_size=self.max_message_size,
            key_decoder_class=self.key_decoder_class,
            value_decoder_class=self.value_decoder_class,
            decoder=self._decoder(),
            index_sanity_check=self.index_sanity_check,
            verify_index_only=self.verify_index_only,
        )

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
