"""The same screen in a browser."""
