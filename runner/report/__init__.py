"""For eyes: a finished run as a line, an alert, a page. Pure functions of the result object."""
