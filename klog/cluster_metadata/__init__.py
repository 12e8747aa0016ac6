"""A cluster's metadata as one value, and its forms: JSON, the tree, KRaft's and ZooKeeper's files."""
