"""How a compiled function is called: what torch puts around it, where that can be less or has to be more."""
