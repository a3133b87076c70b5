"""A debugging session as pure logic: events of the rank in, commands for it out. No process, no socket, no terminal."""
