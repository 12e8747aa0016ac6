"""Groups: classic ones, those of the consumer protocol (KIP-848), and their committed offsets."""
