"""The command line: one module per subcommand, with its options, one call, and its output."""
