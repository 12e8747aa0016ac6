"""Bytes of keys and values to typed columns: one module an encoding, all with the interface of `decoder`."""
