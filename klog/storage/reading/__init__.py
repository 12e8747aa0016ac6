"""Reads batches and records of segments and partitions, selected by offset, time or transaction."""
