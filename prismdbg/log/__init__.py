"""A rank's log on the host: columns for all of it, a value for the row that is asked for."""
