"""Where each partition ends at a moment, consistent across partitions. Pure: no files, no clock."""
