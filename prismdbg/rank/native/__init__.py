"""The recorder and the tracer in C++, and how they are built and loaded."""
