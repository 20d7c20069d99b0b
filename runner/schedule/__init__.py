"""When a job runs, what became of each slot, and the loop that watches over both."""
