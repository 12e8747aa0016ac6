"""The commands that work on files of log directories, without a broker."""
