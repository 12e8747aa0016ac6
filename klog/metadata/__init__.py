"""The metadata of the cluster: a tree of versioned nodes, its two stores, and each broker's cache of it.

`store` is the interface; `embedded` and `zookeeper` implement it. `znodes` defines what each node holds,
`cluster`, `topics` and `configs` the operations on the tree, `assignment` the placement of replicas, and
`cache` what a broker knows.
"""
