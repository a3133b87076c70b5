"""Scripted replay: expectations about a captured rank, read from YAML, carried out through the debugger, reported.

A client of `debugger.debugger` like the terminals; it decides what was asked for, never how a rank is stepped.
"""
