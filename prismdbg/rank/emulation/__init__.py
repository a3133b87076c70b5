"""One real rank among synthesized peers: a world of any size, one process. Imports torch only in what runs there."""
