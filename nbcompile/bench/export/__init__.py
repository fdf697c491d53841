"""Export: a program as a file that runs without its Python source, checked and timed in a fresh process.

``program.py`` makes a module, dimensions and an ``ExportedProgram`` of what the user gives, ``blocked.py``
says at which lines that failed, ``fresh.py`` runs the file in a new process, ``report.py`` holds what came of
it, and ``export.py`` is :func:`nbcompile.export`.
"""
