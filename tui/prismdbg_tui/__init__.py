"""The terminal debugger's package. It holds nothing yet; the line-oriented `prismdbg debug` is what there is."""
