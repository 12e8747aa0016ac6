"""Reads command lines and prints output as the tools of Kafka 3.9 do."""
