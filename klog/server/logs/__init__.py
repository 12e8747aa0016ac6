"""A broker's work on its logs beside serving them: cleaning, moves between directories, strays."""
