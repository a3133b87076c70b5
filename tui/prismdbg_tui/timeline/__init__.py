"""The timeline: a recording as lanes of cells."""
