"""The options of Kafka's own dump tool, as options of `klog dump-segment`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from klog.commands.shared.connection import Version
from klog.commands.shared.option_sets import flag, optional
from klog.commands.shared.records.plan import Decoder, KafkaFlags
from klog.formats.constants import INT32_MAX

DEFAULT_FLAGS: Final = KafkaFlags()
_PANEL: Final = "Kafka's own options (they imply --format kafka)"


_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"


def _decoder_class(name: str) -> str | None:
    return optional(
        None,
        "A decoder class of Kafka.",
        name,
        panel=_PANEL,
        metavar="CLASS",
        without_value={name: _DECODER},
    )


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Kafka's flags by Kafka's names."""

    print_data_log: bool = flag("Print records with keys and values.", panel=_PANEL)
    deep_iteration: bool = flag("Print the records of each batch.", panel=_PANEL)
    skip_record_metadata: bool = flag("Print records without metadata.", panel=_PANEL)
    max_bytes: int = optional(
        INT32_MAX, "Read at most so many bytes of batches per file.", panel=_PANEL, metavar="BYTES"
    )
    max_message_size: int = optional(
        DEFAULT_FLAGS.max_message_size, "The size of the largest batch.", panel=_PANEL, metavar="BYTES"
    )
    key_decoder_class: str | None = _decoder_class("--key-decoder-class")
    value_decoder_class: str | None = _decoder_class("--value-decoder-class")
    offsets_decoder: bool = flag("Decode records of __consumer_offsets.", panel=_PANEL)
    transaction_log_decoder: bool = flag("Decode records of __transaction_state.", panel=_PANEL)
    cluster_metadata_decoder: bool = flag("Decode records of __cluster_metadata.", panel=_PANEL)
    remote_log_metadata_decoder: bool = flag("Decode records of __remote_log_metadata.", panel=_PANEL)
    share_group_state_decoder: bool = flag(
        "Decode records of __share_group_state, as Kafka 4 does.", panel=_PANEL
    )
    index_sanity_check: bool = flag("Check indexes; do not print them.", panel=_PANEL)
    verify_index_only: bool = flag("Check indexes against the log; do not print them.", panel=_PANEL)
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
