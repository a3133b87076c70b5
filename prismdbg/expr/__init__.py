"""One small language for stops, watches and `print`: read by the session, evaluated in the rank."""
