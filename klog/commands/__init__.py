"""The command line: one module a subcommand. Options, a call, a rendering."""
