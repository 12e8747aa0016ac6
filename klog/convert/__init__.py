"""Conversion of segments to another message format and codec, for logs that no broker has open.

Magic 0 and 1 become 2, codecs change, and small batches are joined. What a consumer or a broker sees of the
records stays: offsets, timestamps, headers, producers, sequences, transactions and leader epochs.
"""
