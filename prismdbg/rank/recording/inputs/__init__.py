"""What a recorded rank takes in besides what its peers send: files, other programs, random numbers, arguments."""
