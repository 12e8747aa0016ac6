"""The options of Kafka's own dump tool, as options of `klog dump-segment`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer
from typer.models import OptionInfo

from klog.commands.dump.plan import Decoder, KafkaFlags
from klog.formats.constants import INT32_MAX

DEFAULT_FLAGS: Final = KafkaFlags()
_PANEL: Final = "Kafka's own options (they imply --format kafka)"


def _flag(name: str, summary: str) -> OptionInfo:
    info: OptionInfo = typer.Option(name, help=summary, rich_help_panel=_PANEL)
    return info


def _value(metavar: str, summary: str) -> OptionInfo:
    info: OptionInfo = typer.Option(metavar=metavar, help=summary, rich_help_panel=_PANEL)
    return info


_DECODER_CLASS: Final = _value("CLASS", "A decoder class of Kafka.")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Kafka's flags by Kafka's names."""

    print_data_log: Annotated[bool, _flag("--print-data-log", "Print records with keys and values.")] = False
    deep_iteration: Annotated[bool, _flag("--deep-iteration", "Print the records of each batch.")] = False
    skip_record_metadata: Annotated[
        bool, _flag("--skip-record-metadata", "Print records without metadata.")
    ] = False
    max_bytes: Annotated[int, _value("BYTES", "Read at most so many bytes of batches per file.")] = INT32_MAX
    max_message_size: Annotated[int, _value("BYTES", "The size of the largest batch.")] = (
        DEFAULT_FLAGS.max_message_size
    )
    key_decoder_class: Annotated[str | None, _DECODER_CLASS] = None
    value_decoder_class: Annotated[str | None, _DECODER_CLASS] = None
    offsets_decoder: Annotated[bool, _flag("--offsets-decoder", "Decode records of __consumer_offsets.")] = (
        False
    )
    transaction_log_decoder: Annotated[
        bool, _flag("--transaction-log-decoder", "Decode records of __transaction_state.")
    ] = False
    cluster_metadata_decoder: Annotated[
        bool, _flag("--cluster-metadata-decoder", "Decode records of __cluster_metadata.")
    ] = False
    remote_log_metadata_decoder: Annotated[
        bool, _flag("--remote-log-metadata-decoder", "Decode records of __remote_log_metadata.")
    ] = False
    index_sanity_check: Annotated[
        bool, _flag("--index-sanity-check", "Check indexes; do not print them.")
    ] = False
    verify_index_only: Annotated[
        bool, _flag("--verify-index-only", "Check indexes against the log; do not print them.")
    ] = False

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
        }
        return next((decoder for decoder, is_given in given.items() if is_given), None)
