"""What the cluster agrees on: the tree of versioned nodes, its two stores, and the brokers' view of it.

`store` is the interface and `embedded` and `zookeeper` its two implementations; `znodes` says what each node
holds, `cluster` what may be done to the tree, `assignment` where replicas go, `cache` what a broker knows.
"""
