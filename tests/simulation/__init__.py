"""A whole cluster in one thread, under a seed: a broker's code on a simulated network, tree and disk."""
