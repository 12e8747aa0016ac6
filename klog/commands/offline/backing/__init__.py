"""Options and rows of `klog backup`."""
