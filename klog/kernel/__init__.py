"""What works on many records at once: columns, the compiled modules and their twins in Python."""
