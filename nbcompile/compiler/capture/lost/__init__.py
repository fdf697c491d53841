"""What torch loses, or gets wrong, on the way from a captured graph through AOTAutograd, and what is done."""
