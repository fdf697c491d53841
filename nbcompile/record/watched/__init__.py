"""What is kept of a compile only where somebody asked to watch it."""
