"""LOOKS. The Box and the checks: what is asked before anything is touched. Knows no job, no alert; changes nothing.

`box` says what may be asked, `check` how a question looks, `rings` asks them in blast-radius order. The
checks live in a room for each ring: `files` and `models`, `ports`, `gpu`, `host`, `production`. The real
Box lives in `linux`; no check may import it.
"""
