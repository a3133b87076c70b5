"""The files of a rank's log: their format, and what reads and follows them event by event."""
