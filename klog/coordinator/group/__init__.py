"""The group coordinator of the classic protocol: members, rebalances, committed offsets."""
