"""What stands before handlers: it refuses what a client may not do, and hides what it may not see."""
