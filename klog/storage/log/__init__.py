"""The log of a partition as a broker writes it: segments, indexes, producers, retention, compaction."""
