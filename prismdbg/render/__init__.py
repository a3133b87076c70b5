"""Values and answers as text, for the command line and the screen."""
