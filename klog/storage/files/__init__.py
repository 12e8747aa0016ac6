"""Files and directories of a log directory: names, listings, locks, atomic writes."""
