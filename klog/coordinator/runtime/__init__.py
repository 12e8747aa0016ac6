"""What both coordinators need: owned partitions, loading, order, timers."""
