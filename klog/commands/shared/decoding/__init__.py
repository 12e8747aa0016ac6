"""Decodes keys and values for `klog consume` and `klog dump-segment`, with the decoders of `klog export`."""
