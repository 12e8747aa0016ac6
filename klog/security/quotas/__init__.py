"""How much a client may do: which limit applies to it, what it has used, for how long it is throttled."""
