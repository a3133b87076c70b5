"""One file for each place that sensors are read from. They need the standard library only, but for NVIDIA's."""
