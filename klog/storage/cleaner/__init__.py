"""The log cleaner: compaction is decided (`selection`), carried out on files (`cleaning`) and swapped in.

Rules: KIP-534 (delete horizons), KIP-98 (transactions), Kafka's `LogCleaner`, `LogCleanerManager` and
`MemoryRecords.filterTo`. The pass over the data uses only files and a task, so it can run in a process of its
own and blocks nobody. The owner of the log swaps its output in.
"""
