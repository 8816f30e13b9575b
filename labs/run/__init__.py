"""Many cells in one run: planned and pinned once, built once, run in parallel within what the host has, resumable."""
