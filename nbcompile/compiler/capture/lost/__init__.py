"""What torch loses or gets wrong, from a program to its graph and through AOTAutograd, and what is done."""
