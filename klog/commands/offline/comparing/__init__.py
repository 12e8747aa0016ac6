"""Prints the result of `klog diff`, as text and as rows."""
