"""The coordinators inside a broker: their configs, logs, timers and threads."""
