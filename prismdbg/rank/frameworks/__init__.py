"""Training frameworks whose state is registered, or whose steps are counted, with no change to the program. None is
imported from here."""
