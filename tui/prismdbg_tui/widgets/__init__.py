"""Panes, one by region of the screen. They show what they are given and post what was done to them."""
