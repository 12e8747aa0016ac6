"""Tests klog as a process: in turns with Kafka, killed, without disk space or descriptors, under load."""
