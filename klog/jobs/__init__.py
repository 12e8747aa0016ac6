"""Work in threads and processes, and the progress of it."""
