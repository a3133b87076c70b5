"""A debug adapter: the debugger spoken to by editors, in the Debug Adapter Protocol."""
