"""Checkpoints: `engine` is the seam and `choice` says which engine is used; the other modules are CRIU's, but for
`bounded` and `cache`."""
