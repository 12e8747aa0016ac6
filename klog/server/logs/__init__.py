"""What a broker does for its logs beside serving them: cleaning, moves between directories, strays."""
