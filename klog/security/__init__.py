"""Who a client is, what it may do, and how much: decisions as values, without sockets, clocks and threads."""
