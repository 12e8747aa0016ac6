"""Requests answered: one module an API family. Decoding and encoding is the protocol room's."""
