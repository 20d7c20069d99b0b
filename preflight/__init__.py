"""LOOKS. The Box and the checks: what is asked before anything is touched. Knows no job, no alert; changes nothing."""
