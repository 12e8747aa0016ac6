"""The log cleaner: compaction, decided (`selection`), carried out on files (`cleaning`) and swapped in.

Rules: KIP-534 (delete horizons), KIP-98 (transactions), Kafka's `LogCleaner`, `LogCleanerManager` and
`MemoryRecords.filterTo`. The pass over the data knows only files and a task, so that it can run in a process
of its own and hold nobody up; what it made is swapped in by whoever owns the log.
"""
