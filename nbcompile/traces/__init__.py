"""Compiles from elsewhere: what ``TORCH_TRACE`` wrote on a training job, of one rank or thousands.

``reading`` makes an index of a file, ``records`` a record of a compilation in it. ``trace`` and ``trace_set``
are what :func:`nbcompile.open` (``opening``) returns: ``ranks`` reads many files at a time, ``divergence``
says which compiled something else, ``report`` and ``set_report`` are their text and HTML. Nothing here needs
torch.
"""
