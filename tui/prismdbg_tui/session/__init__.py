"""The screen of one rank: what is on it, what keys do, and the debugger behind it."""
