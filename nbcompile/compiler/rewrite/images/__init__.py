"""Images whose channels lie innermost in memory, for the libraries that convolve them."""
