"""The renderings of `klog dump-segment`: one module a format, each `run(plan, out) -> exit code`."""
