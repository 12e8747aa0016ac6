"""What `klog diff` prints."""
