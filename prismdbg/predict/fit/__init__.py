"""Times of shapes that nobody measured, from those that somebody did."""
