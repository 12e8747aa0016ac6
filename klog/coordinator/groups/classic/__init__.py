"""Groups whose members choose the assignment themselves (the classic protocol)."""
