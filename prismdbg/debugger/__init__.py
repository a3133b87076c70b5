"""One rank, stepped forwards and backwards: what a REPL, a screen and a script have in common."""
