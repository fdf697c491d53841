"""Sweeps: one program through every combination of compilers, modes, types and sizes.

``grid`` says which points there are, ``point`` measures one of them, ``workers`` and ``isolated`` say where,
``running`` puts them through, ``store`` keeps what is done, and ``result`` is what comes back.
"""
