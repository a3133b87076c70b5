"""Process images: finding and building CRIU, dumping a live rank, reading and editing its images."""
