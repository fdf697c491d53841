"""From a compilation of a trace to the record that every view reads: ``record`` makes it, of graphs as torch
prints them (``printed``), Inductor's code (``kernels``, ``fused``) and Dynamo's words (``told``)."""
