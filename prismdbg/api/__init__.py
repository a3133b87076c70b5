"""prismdbg in programs, notebooks and tests: `prismdbg.open` reads a recording, `prismdbg.replay` runs a rank."""
