"""klog: Kafka's log, in Python."""
