"""What a tree puts on its links, measured on this machine: the demo and the benchmarks use it."""
