"""What an agent in a rank and its clients say to each other on a Unix socket. Standard library only."""
