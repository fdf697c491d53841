"""What a record shows, as plotly figures: to be restyled, exported, put on a slide.

``style.py`` has what all of them share, a module each the charts of one thing; ``charts.py`` knows them by
name and is what :meth:`nbcompile.record.compilation.Compilation.plot` opens."""
