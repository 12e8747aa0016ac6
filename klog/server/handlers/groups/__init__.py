"""Handlers of the requests of consumer groups. They translate messages; `klog.coordinator.groups` decides."""
