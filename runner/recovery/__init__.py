"""Brings production back: the world, the recipe, the restore, the guardian. Standard library only.

A broken upgrade, a full disk or a corrupt journal must not keep production down, so nothing here
needs the journal, the configuration or any installed package.
"""
