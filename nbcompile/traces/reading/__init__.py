"""From a file to its index: ``lines`` reads it once, in bounded memory; ``index`` sorts what it says by
compilation (``compiles``, ``timing``) into ``values``, with hashes to compare ranks by (``digests``).
"""
