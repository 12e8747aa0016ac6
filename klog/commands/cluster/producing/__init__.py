"""Parts of the command `klog produce`: options and transactions."""
