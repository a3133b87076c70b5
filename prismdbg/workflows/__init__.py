"""What a user asks for, as plans carried out with the parts below. No torch; a rank is reached through its agent."""
