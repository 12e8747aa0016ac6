"""How a follower fetches from its leaders: pure state machines without threads, sockets and clocks."""
