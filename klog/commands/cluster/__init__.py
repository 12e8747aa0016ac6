"""The commands that talk to a cluster, klog's or Kafka's."""
