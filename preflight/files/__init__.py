"""Ring 1: the files a run names, by explicit path. What is in a model is `preflight.models`."""
