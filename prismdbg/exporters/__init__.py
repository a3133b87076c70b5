"""What a recording holds, in the files that other tools read."""
