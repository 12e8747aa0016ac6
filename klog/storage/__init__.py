"""Files of a log directory: reading, checking, rebuilding and recovering them."""
