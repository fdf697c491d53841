"""A cell on several ranks: DDP, FSDP2 or plain, each rank compiled through :func:`nbcompile.compile`."""
