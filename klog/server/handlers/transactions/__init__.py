"""Handlers of transactional requests. They translate messages; `klog.coordinator.transactions` decides."""
