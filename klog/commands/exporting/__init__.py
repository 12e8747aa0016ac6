"""What `klog export` is made of: its options, and what it shows while it runs."""
