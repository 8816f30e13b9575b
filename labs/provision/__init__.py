"""Machines: the host's accelerator and budget, and the providers that turn a cell into a guest."""
