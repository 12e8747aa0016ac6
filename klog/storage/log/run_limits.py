"""Checks runs of batches, which are not looked at one by one, against the limits of their topic.

The rules are those of `validation`; whatever does not keep within these limits is left to it.
"""

from __future__ import annotations

from klog.config.topic import TopicConfig
from klog.storage.log.batch_run import BatchRun
from klog.storage.log.conversion import target_codec

_NO_TIMESTAMP = -1
_NOT_COMPRESSED = 0


class RunLimits:
    """The limits of one topic. They hold for runs of uncompressed batches (`BatchRun`)."""

    __slots__ = ("_after_max_ms", "_as_is", "_before_max_ms", "_keys_needed", "_max_bytes", "flush_messages")

    def __init__(self, config: TopicConfig) -> None:
        self._as_is = not config.log_append_time and target_codec(config, _NOT_COMPRESSED) == _NOT_COMPRESSED
        self._keys_needed = config.compact
        self._max_bytes = config.max_message_bytes
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self.flush_messages = config.flush_messages

    def allow(self, run: BatchRun, now_ms: int) -> bool:
        """Whether every batch of the run may be written as it is."""
        smallest = run.smallest_timestamp
        return (
            self._as_is
            and run.largest_size_bytes <= self._max_bytes
            and not (self._keys_needed and run.keyless)
            and (
                smallest == _NO_TIMESTAMP
                or (
                    now_ms - smallest <= self._before_max_ms
                    and run.max_timestamp - now_ms <= self._after_max_ms
                )
            )
        )
