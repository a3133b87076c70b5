"""What the whole job would do: the execution graph of all ranks, a model of the cluster, and its simulation."""
