"""Parts of the command `klog export`: options, progress, plan and report as text."""
