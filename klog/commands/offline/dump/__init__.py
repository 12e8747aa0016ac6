"""The output formats of `klog dump-segment`: each is a module with `run(plan, out) -> exit code`."""
