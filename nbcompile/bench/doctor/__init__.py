"""The doctor: what could make a program faster, each tried in a process of its own, ranked by what it gains.

``switches.py`` says what there is to turn, ``candidates.py`` which of these are worth trying on a program,
``patient.py`` carries the program to another process and changes it there, ``trial.py`` measures it beside
its present state, ``ward.py`` gives each trial its process, ``examination.py`` decides what is tried next,
and ``examine.py`` is the front door, :func:`nbcompile.doctor`."""
