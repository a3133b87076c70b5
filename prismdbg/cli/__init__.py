"""The command line: one subcommand a file, each parses, calls one function and renders. Exit codes in one enum."""
