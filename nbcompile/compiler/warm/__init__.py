"""The cache of whole captured graphs: what AOTAutograd and our compiler made of one before, forward and
backward, with all that stands around them. A hit traces and lowers nothing.

AOTAutograd has such a cache for Inductor. ``hooks`` makes it take ours, on disk with our other entries;
``facts`` says which graphs it is for, and adds to its key what torch's does not tell; ``kept`` is what it
holds of a graph; ``lookup`` is one compile's part in it.
"""
