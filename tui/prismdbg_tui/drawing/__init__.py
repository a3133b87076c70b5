"""What all panes are drawn with: colours, numbers, values, pictures."""
