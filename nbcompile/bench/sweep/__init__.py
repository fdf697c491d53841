"""Sweeps: one program through every combination of compilers, modes, types and sizes.

``grid`` says which points there are, ``point`` measures one of them, ``workers`` says where,
``running`` puts them through, ``store`` keeps what is done, and ``result`` is what comes back.
"""
