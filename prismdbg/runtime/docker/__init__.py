"""The Docker engine, as far as a replay needs it: its daemon, its programming interface, images and what they hold."""
