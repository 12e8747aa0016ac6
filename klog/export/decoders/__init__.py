"""Decoders of keys and values to typed columns: one module for each encoding, with the interface of
`decoder`."""
