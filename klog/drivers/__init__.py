"""What a broker sends to others, as state machines: what next, what an answer means, when to come back.

No threads, no clocks, no sockets: the broker's threads and the simulator run the same drivers.
"""
