"""The systemd units of the runner and the rule that lets it drive production, made for one box."""
