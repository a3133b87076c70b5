"""All ranks of a simulated job on one screen: a heat map by mesh coordinates, from which one drops into a rank."""
