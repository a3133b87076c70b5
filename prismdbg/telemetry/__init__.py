"""What the machine did beside a job: collectors of sensors, how their readings are stored, and how they are read."""
