"""Ring 1 too: what is inside model files, by their headers, and what that takes of memory."""
