"""The time line: a recording as lanes of cells."""
