"""Parts of the command `klog consume`: options, membership of a group, and how records are printed."""
