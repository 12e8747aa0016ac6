"""A follower's fetching from its leaders: pure state machines without threads, sockets and clocks."""
