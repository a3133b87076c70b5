"""The simulation: clocks of cohorts of ranks, where they meet, and the timeline that comes of it."""
