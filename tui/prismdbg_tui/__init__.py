"""The terminal application over a debugger session. Front ends reach a rank only through `protocol` and `debugger`."""
