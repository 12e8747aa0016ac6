"""The controller's decisions: elections, partition and replica states, deletion and growth of topics.

Everything but `runner` is free of threads, clocks and sockets: an event goes in, writes to the tree and
requests to brokers come out.
"""
