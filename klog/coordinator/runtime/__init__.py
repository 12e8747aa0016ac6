"""Parts that both coordinators use: owned partitions, loading, order, timers."""
