"""The handlers of requests: one module for each family of APIs. `klog.protocol` decodes and encodes."""
