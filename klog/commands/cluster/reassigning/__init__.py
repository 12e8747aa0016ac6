"""The subcommands of `klog reassign`."""
