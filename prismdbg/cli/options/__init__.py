"""Options that several subcommands have, and values as people write them."""
