"""klog as a process of its own: in Kafka's place and back, killed, starved, and under load."""
