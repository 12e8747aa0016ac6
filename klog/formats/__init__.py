"""The formats of a Kafka log directory: each file is defined once, in pure functions that open no files."""
