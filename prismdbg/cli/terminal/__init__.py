"""The line debugger and what else stays in a terminal."""
