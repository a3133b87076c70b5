"""Other tools' files, read as the values that a log of prismdbg is read as. What it does not say is unknown."""
