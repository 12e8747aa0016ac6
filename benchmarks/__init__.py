"""klog beside a named peer, on the same generated file, in the same run: `python -m benchmarks.run`."""
