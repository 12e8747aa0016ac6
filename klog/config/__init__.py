"""Kafka's configs by name: types, defaults, limits, synonyms, properties and dynamic overrides.

Names, defaults and limits are those of Kafka 3.9 (documentation, "Broker Configs" and "Topic Configs"). The
package opens no files. What a config does is defined where it is used.
"""
