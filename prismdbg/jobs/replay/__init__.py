"""A captured rank runs again."""
