"""What a compilation costs, and what could be changed about it."""
