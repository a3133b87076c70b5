"""What counts as a secret: by names, by shapes, by places of files, and by rules of the user's own."""
