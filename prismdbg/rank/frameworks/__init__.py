"""Training frameworks whose state is registered with no change to the program. None of them is imported from here."""
