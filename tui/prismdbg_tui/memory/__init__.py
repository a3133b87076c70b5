"""The memory pane: the curve, and what is alive as areas."""
