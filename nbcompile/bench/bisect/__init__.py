"""When numbers differ: the first stage, then the first operator, then the smallest cell."""
