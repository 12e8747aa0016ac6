"""What each broker config about log directories and cleaning does. Defaults of topic configs are not here."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
delete.records.purgatory.purge.interval.requests: After how many finished DeleteRecords requests those that
  still occupy memory are removed.
log.cleaner.backoff.ms: How long the cleaner sleeps if there is nothing to clean, in ms.
log.cleaner.dedupe.buffer.size: The memory for the maps of keys of all cleaner threads together, in bytes. A
  larger map lets one pass cover more of a log.
log.cleaner.enable: Whether the broker compacts logs. It must be true for topics with cleanup.policy=compact,
  __consumer_offsets included.
log.cleaner.io.buffer.load.factor: How full the map of keys may become, 0 to 1. Higher values clean more of a
  log at a time, with more collisions of keys.
log.cleaner.io.buffer.size: The memory for reading and writing of all cleaner threads together, in bytes.
log.cleaner.io.max.bytes.per.second: How many bytes a second all cleaner threads together may read and write.
log.cleaner.threads: The number of cleaner threads.
log.dir: The directory of the logs, if log.dirs is not set.
log.dirs: The directories of the logs, with commas between them. Without a value it is log.dir.
log.flush.offset.checkpoint.interval.ms: How often the file recovery-point-offset-checkpoint is written, in
  ms. After a crash, logs are checked from these offsets on.
log.flush.scheduler.interval.ms: How often the broker looks for logs that are due to be forced to
  disk, in ms.
log.flush.start.offset.checkpoint.interval.ms: How often the file log-start-offset-checkpoint is written, in
  ms. Deleted records stay deleted after a crash as far as it says.
log.initial.task.delay.ms: How long after the start retention, flushing and checkpoints begin, in ms.
log.retention.check.interval.ms: How often the broker looks for segments to delete, in ms.
num.recovery.threads.per.data.dir: How many threads check the logs of each directory at the start after an
  unclean stop, and flush them at a stop.
"""
