"""SHOWS. A demo box with real servers on this machine; knows of a real box's settings nothing."""
