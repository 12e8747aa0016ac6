"""Compares klog with other programs on the same files in the same run: `python -m benchmarks.run`."""
