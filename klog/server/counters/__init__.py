"""What is counted for each request and topic."""
