"""A simulated iteration as one HTML page that needs nothing else: charts are SVG, the map is a picture inside of it."""
